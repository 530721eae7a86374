"""Examples of property tests: the same each time, in the ordinary run."""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import EFFORT, tried

pytestmark = pytest.mark.skipif(EFFORT > 1, reason="new examples are drawn")
EXAMPLES = 200


def drawn(kind: settings) -> list[object]:
    """What a property test sees."""
    seen: list[object] = []

    @kind
    @given(st.integers(), st.text(), st.binary(), st.randoms())
    def test(number: int, text: str, data: bytes, source: random.Random) -> None:
        seen.append((number, text, data, source.random()))

    test()
    return seen


@pytest.mark.parametrize(
    "kind",
    [tried(EXAMPLES), settings(deadline=None), settings(deadline=None, max_examples=EXAMPLES)],
    ids=["tried", "with a setting of its own", "with more examples"],
)
def test_examples_depend_neither_on_chance_nor_on_what_is_imported(
    kind: settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = drawn(kind)
    random.seed()
    lines = [f"A{n} = {n * 7919 + 1_000_003}\nB{n} = 'constant {n}'" for n in range(500)]
    (tmp_path / "many_constants.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("many_constants")
    try:
        assert drawn(kind) == before
    finally:
        del sys.modules["many_constants"]
