"""Mistakes about which records of a log count: those of ``mutations`` that concern decoding, and
transactions."""

from __future__ import annotations

from tests.simulation.mutating import Change, Mutation

RECORDS = (
    Mutation(
        "aborted records are landed",
        Change(
            "dialects.kafka.records:walk_from",
            "AbortedTransactions(fetched.aborted)",
            "AbortedTransactions(())",
        ),
    ),
    Mutation(
        "a marker is called aborted",
        Change(
            "dialects.kafka.chunk_builder:ChunkBuilder.add_control",
            "self.control += self._count",
            "self.aborted += self._count",
        ),
        Change(
            "dialects.kafka.chunk_builder:ChunkBuilder.add_batches",
            "self.control += control",
            "self.aborted += control",
        ),
    ),
    Mutation(
        "records before the position are landed again",
        Change(
            "dialects.kafka.chunk_builder:ChunkBuilder._decode",
            "self.payloads, self.from_offset,",
            "self.payloads, 0,",
        ),
    ),
)
TRANSACTIONS = (
    Mutation(
        "the high watermark is where committed records end",
        Change(
            "survey.survey_attempt:SurveyAttempt._ask_leader",
            "results = ask_offsets(pool, address, group, when, isolation)",
            "results = ask_offsets(pool, address, group, when, type(isolation).READ_UNCOMMITTED)",
        ),
    ),
    Mutation(
        "what an open transaction holds back is truncated",
        Change(
            "planning.absent_partitions:as_open_transaction",
            "loss.until_offset > end",
            "True",
        ),
    ),
    Mutation(
        "an emptied log that has grown again is the one that was landed",
        Change(
            "survey.epoch_ends:epoch_ends",
            "return ends | _ends_before_all(brokers, unknown, epochs), unanswered",
            "return ends, unanswered",
        ),
    ),
    Mutation(
        "brokers are not asked for committed records",
        Change(
            "dialects.kafka.requests:_level",
            "return m.READ_COMMITTED if isolation is Isolation.READ_COMMITTED else",
            "return",
        ),
    ),
    Mutation(
        "one aborted transaction is overlooked",
        Change(
            "dialects.kafka.aborted_transactions:AbortedTransactions.__init__",
            "deque(sorted(aborted, key=lambda t: t[1]))",
            "deque(sorted(aborted, key=lambda each: each[1])[1:])",
        ),
    ),
    Mutation(
        "what another producer wrote meanwhile is aborted, too",
        Change(
            "dialects.kafka.aborted_transactions:AbortedTransactions.is_aborted",
            "if producer not in self._open:",
            "if not self._open:",
        ),
        Change(
            "dialects.kafka.aborted_transactions:AbortedTransactions.is_aborted",
            "del self._open[producer]",
            "self._open.pop(producer, None)",
        ),
    ),
    Mutation(
        "markers are records",
        Change("dialects.kafka.records:LogWalk._take", "if entry.control:", "if False:"),
        Change(
            "dialects.kafka.chunk_builder:ChunkBuilder.add_batches",
            "control = int(counts[is_control(heads)].sum())",
            "control = 0",
        ),
    ),
)
