"""Whether an entry that ended at an offset also ends there for another leader."""

from __future__ import annotations

import pytest

from rangeland.fetch.fetched_pieces import EntryEnd


@pytest.mark.parametrize(
    ("leader", "then", "now", "is_seen"),
    [
        ("b1:9092", 3, 3, True),
        ("b2:9092", 3, 3, True),
        ("b1:9092", 3, 4, False),  # elected again, perhaps without what it had
        ("b2:9092", 3, 4, False),
        ("b1:9092", None, 3, True),
        ("b2:9092", None, 3, False),
        ("b2:9092", 3, None, False),
        ("b1:9092", None, None, True),
    ],
)
def test_an_entry_ends_where_it_did_unless_another_leader_may_have_replaced_it(
    leader: str, then: int | None, now: int | None, is_seen: bool
) -> None:
    assert EntryEnd(5, "b1:9092", then).is_seen_by(leader, now) is is_seen
