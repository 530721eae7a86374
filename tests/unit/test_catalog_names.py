"""A name in a catalog is quoted part by part, however it was written."""

from __future__ import annotations

import pytest

from rangeland.spark.catalog_names import literal, parts_of, quote_name


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("sales.orders", ["sales", "orders"]),
        ("my-catalog.db.orders-2024", ["my-catalog", "db", "orders-2024"]),
        ("`my-catalog`.db.`orders-2024`", ["my-catalog", "db", "orders-2024"]),
        ("`a``b`.c", ["a`b", "c"]),
        ("a`b.c", ["a`b", "c"]),
        ("db.`select`", ["db", "select"]),
        ("db.2024", ["db", "2024"]),
    ],
)
def test_a_name_has_the_parts_that_are_meant(name: str, parts: list[str]) -> None:
    assert parts_of(name) == parts
    assert parts_of(quote_name(name)) == parts, "quoting twice changes nothing"


def test_every_part_is_quoted_and_the_suffix_goes_to_the_last() -> None:
    assert (
        quote_name("my-catalog.db.`o``2`", "__rangeland") == "`my-catalog`.`db`.`o``2__rangeland`"
    )


def test_a_text_cannot_end_its_literal() -> None:
    assert literal("file:/o'clock\\") == r"'file:/o\'clock\\'"
