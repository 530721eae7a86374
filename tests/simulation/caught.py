"""A seed at which each mutation is caught.

Histories are drawn otherwise after a change of ``scenario``; ``python -m
tests.simulation.mutations`` finds new seeds then.
"""

from __future__ import annotations

from collections.abc import Mapping

CAUGHT_AT: Mapping[str, int] = {
    "plans may overlap": 25,
    "a plan is entered whoever came first": 25,
    "unfinished plans stay unfinished": 105,
    "an entry counts as written after a conflict": 38,
    "an entry whose response was lost counts as another driver's": 24,
    "a compaction whose response was lost is undone": 22,
    "later plans forget the plans that are not in the table": 1010,
    "a plan forgets what had landed before": 65,
    "what has landed is landed again": 0,
    "a run does not look at what has landed": 0,
    "prepared files are not checked before the commit": 342,
    "an overwritten table is landed in": 10,
    "files that are gone stay in the table": 22,
    "a table that was restored is landed in": 210,
    "a repair counts as whole whatever it leaves missing": 110,
    "what may have landed has landed": 0,
    "what a backfill has landed is not compared with its log": 45,
    "a held partition moves on": 96,
    "losses are not recorded": 54,
    "every gap is compacted": 190,
    "a log that was cut and has grown again is whole": 28,
    "a topic that was created again is the same": 68,
    "aborted records are landed": 0,
    "a marker is called aborted": 0,
    "records before the position are landed again": 17,
    "another table will do": 182,
    "commits need no lock": 234,
    "another ledger will do": 4,
    "a damaged batch is skipped with what follows": 96,
    "the mirror is ahead of the checkpoint": 1,
    "the outcome of the second driver counts": 359,
    "a reviewed plan is applied whatever has landed since": 9,
    "a reviewed plan is applied whatever is under way": 1239,
    "a replacement removes rows for what is lost": 429,
    "the checkpoint passes the end of a log that was cut": 819,
    "a high watermark that lags is the end": 739,
    "a table without its ledger is landed in": 519,
    "a table that is gone is made again": 1409,
    "a table that was created again meanwhile is landed in": 1169,
    "checksums are not compared": 339,
    "what is quarantined is not kept": 29,
    "what was read again from quarantine is read once more": 29,
    "a part is handed in without knowing the others": 289,
    "the high watermark is where committed records end": 913,
    "what an open transaction holds back is truncated": 563,
    "an emptied log that has grown again is the one that was landed": 321,
    "brokers are not asked for committed records": 3,
    "one aborted transaction is overlooked": 3,
    "what another producer wrote meanwhile is aborted, too": 3,
    "markers are records": 3,
}
