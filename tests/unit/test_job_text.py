"""Job file text: every value remembers its line, and no text ends in a foreign exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from rangeland.errors import JobFileError, UsageError
from rangeland.job.extends import read_job_text
from rangeland.job.job_text import override, parse_job_text, with_value

TEXT = """\
job: orders
source:
  servers: [a:9092]
  topics:
    - orders
    - returns
range:
  from: {orders: {0: 23}}
  until: 2026-01-01T00:00:00Z
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("job",), 1),
        (("source",), 2),
        (("source", "topics"), 4),
        (("source", "topics", 1), 6),
        (("range", "from", "orders", 0), 8),
        (("range", "until"), 9),
    ],
)
def test_a_field_knows_its_line(path: tuple[str | int, ...], line: int) -> None:
    text = parse_job_text(TEXT, "o.yaml")
    assert text.line_of(path) == line
    assert text.where(path) == f"o.yaml:{line}"


def test_a_field_that_is_not_there_has_the_line_of_what_is_around_it() -> None:
    text = parse_job_text(TEXT, "o.yaml")
    assert text.where(("source", "security", "tls")) == "o.yaml:2"
    assert text.where(("sink",)) == "o.yaml"
    assert text.line_of(("sink",)) is None


def test_times_stay_text() -> None:
    values = parse_job_text(TEXT + "a: 2026-01-01\n", "o.yaml").values
    assert values["range"]["until"] == "2026-01-01T00:00:00Z"
    assert values["a"] == "2026-01-01"


@pytest.mark.parametrize(
    ("text", "line"),
    [("job: a\njob: b\n", 2), ("s:\n  x: 1\n  y: 2\n  x: 3\n", 4), ("r: {0: 1, 0: 2}\n", 1)],
)
def test_a_key_that_stands_twice_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(JobFileError, match="occurs twice") as caught:
        parse_job_text(text, "o.yaml")
    assert f"o.yaml:{line} " in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "job: [a",
        "job: 'a",
        "a: b: c",
        "\tjob: a",
        "job: a\x00",
        "? [a]\n: b\n",
        "? {a: b}\n: c\n",
        "a: &x [*x]\n",
        "a: *nobody\n",
        "a: 0b_\n",
        "a: !!bool maybe\n",
        "a: !!int x\n",
        "a: !!python/object:os.system x\n",
    ],
)
def test_what_is_not_yaml_is_a_job_file_error(text: str) -> None:
    with pytest.raises(JobFileError, match=r"o\.yaml.* is not YAML"):
        parse_job_text(text, "o.yaml")


BRACES = 'quote values that contain braces: {table: "lake/{topic}"}'
INDENTED = "check the indentation, or quote a value that contains ': '"


@pytest.mark.parametrize(
    ("text", "what", "advice"),
    [
        ("--- 1\n--- 2\n", "o.yaml:2 has two documents", "keep one"),
        ("sink: {}\nsink: {}\n", "o.yaml:2 has a field twice", "'sink' occurs twice"),
        ("a: b: c", "o.yaml:1 is not YAML", INDENTED),
        ("sink: {table: lake/{topic}}", "o.yaml:1 is not YAML", BRACES),
        ("sink: {table: {topic}/x}", "o.yaml:1 is not YAML", BRACES),
        ("a: {b: c,\n  password: ${env:P}}", "o.yaml:2 is not YAML", BRACES),
        ("a: {b: {c: 1 d: 2}}", "o.yaml:1 is not YAML", "expected ',' or '}'"),
    ],
)
def test_what_a_text_lacks_is_said_in_plain_words(text: str, what: str, advice: str) -> None:
    with pytest.raises(JobFileError) as caught:
        parse_job_text(text, "o.yaml")
    assert caught.value.what == what
    assert advice in f"{caught.value.why}; {caught.value.do}"
    assert (BRACES in caught.value.why) == (advice == BRACES)


@pytest.mark.parametrize(
    ("text", "problem", "do"),
    [
        (
            "r:\n  f: {0: 0100}",
            "2: r.f.0: 0100: YAML reads this as an octal number, 64",
            "100 or 64",
        ),
        ("p: [1, 010]", "1: p.1: 010: YAML reads this as an octal number, 8", "10 or 8"),
        ("p: [01]", "1: p.0: 01: YAML reads this as an octal number, 1", "1"),
        ("p: [0x10]", "1: p.0: 0x10: YAML reads this as a hexadecimal number, 16", "16"),
        ("p: -0b11", "1: p: -0b11: YAML reads this as a binary number, -3", "-3"),
        ("r: {1: 1:30}", "1: r.1: 1:30: YAML reads this as a number of base 60, 90", "90"),
        ("r: 1:30.5", "1: r: 1:30.5: YAML reads this as a number of base 60, 90.5", "90.5"),
        ("r: {010: 5}", "1: r.10: 010: YAML reads this as an octal number, 8", "10 or 8"),
    ],
)
def test_a_number_that_yaml_reads_as_another_is_refused(text: str, problem: str, do: str) -> None:
    with pytest.raises(JobFileError) as caught:
        parse_job_text(text, "o.yaml")
    assert caught.value.what == f"o.yaml:{problem}"
    assert caught.value.do == f"write {do}, or put it in quotes if it is text"


def test_a_number_that_yaml_reads_as_another_is_refused_in_an_option() -> None:
    with pytest.raises(UsageError) as caught:
        override(parse_job_text(TEXT, "o.yaml"), ["range.from.orders={0: 0100}"])
    problem = "0100: YAML reads this as an octal number, 64"
    assert caught.value.what == f"--set range.from.orders.0: {problem}"


def test_decimal_numbers_and_texts_are_what_they_are() -> None:
    values = parse_job_text("a: [0, -5, +7, 1_000, 08, '010', \"1:30\", 1.5]", "o.yaml").values
    assert values["a"] == [0, -5, 7, 1000, "08", "010", "1:30", 1.5]


@pytest.mark.parametrize(
    "text",
    [
        "source: {security: {sasl: {passwd: 0123}}}",
        "decode: {registry: {tokn: 0123}}",
        "source: {password: 0123}",
        "password: {a: [0123]}",
    ],
)
def test_a_number_where_a_secret_may_be_is_not_repeated(text: str) -> None:
    assert parse_job_text(text, "o.yaml")  # Refused with its field, which needs no value.


def test_a_syntax_error_names_its_line() -> None:
    with pytest.raises(JobFileError, match=r"o\.yaml:3 is not YAML"):
        parse_job_text("job: a\nsource:\n  x: y: z\n", "o.yaml")


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n", "words\n", "12\n"])
def test_yaml_without_fields_is_not_a_job_file(text: str) -> None:
    with pytest.raises(JobFileError, match="is not a job file"):
        parse_job_text(text, "o.yaml")


def test_a_file_that_cannot_be_read_is_a_job_file_error(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match="cannot be read"):
        read_job_text(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"job: \xff\xfe\n")
    with pytest.raises(JobFileError, match="cannot be read"):
        read_job_text(tmp_path / "latin.yaml")


def test_a_file_is_named_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "o.yaml"
    path.write_text("job: ä\n", encoding="utf-8")
    text = read_job_text(path)
    assert text.values == {"job": "ä"}
    assert text.where(("job",)) == f"{path}:1"


def test_an_override_replaces_adds_and_is_read_as_yaml() -> None:
    text = parse_job_text(TEXT, "o.yaml")
    laid = override(text, ["job=b", "limits.max_records=5", "source.topics=[x, y]", "range.x=a=b"])
    assert laid.values["job"] == "b"
    assert laid.values["limits"] == {"max_records": 5}
    assert laid.values["source"]["topics"] == ["x", "y"]
    assert laid.values["source"]["servers"] == ["a:9092"]
    assert laid.values["range"]["x"] == "a=b"


def test_an_override_leaves_the_text_it_is_laid_over_alone() -> None:
    text = parse_job_text(TEXT, "o.yaml")
    override(text, ["source.topics=[x]", "range.from.orders={1: 2}"])
    assert text.values == parse_job_text(TEXT, "o.yaml").values
    assert text.overridden == {}


def test_the_last_override_of_a_field_wins() -> None:
    assert override(parse_job_text(TEXT, "o"), ["job=b", "job=c"]).values["job"] == "c"


def test_a_mistake_in_an_override_is_not_blamed_on_the_file() -> None:
    laid = override(parse_job_text(TEXT, "o.yaml"), ["source.topics=[x]"])
    assert laid.where(("source", "topics", 0)) == "--set source.topics"
    assert laid.where(("source", "servers")) == "o.yaml:3"


@pytest.mark.parametrize(
    "assignment",
    ["job", "=x", "", ".=x", "limits.=x", "a..b=1", "job=[a", "job='", "a=0b_", "extends=a.yaml"],
)
def test_an_override_that_cannot_be_read_is_a_usage_error_by_name(assignment: str) -> None:
    with pytest.raises(UsageError, match="--set") as caught:
        override(parse_job_text(TEXT, "o.yaml"), [assignment])
    form = "in the job file" if "extends" in assignment else "as --set limits.max_records=1000"
    assert form in caught.value.do


def test_an_override_through_a_plain_value_is_a_matter_of_the_job_file() -> None:
    with pytest.raises(JobFileError, match=r"--set job\.x: job holds"):
        override(parse_job_text(TEXT, "o.yaml"), ["job.x=1"])


def test_put_lays_a_value_over_one_field() -> None:
    text = parse_job_text(TEXT, "o.yaml")
    laid = with_value(text, ("range", "from"), {"orders": {1: 7}})
    assert laid.values["range"]["from"] == {"orders": {1: 7}}
    assert text.values["range"]["from"] == {"orders": {0: 23}}
    assert ("range", "from") in laid.overridden


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("job: a\nsource:\n\tservers: [a:1]\n", 3),
        ("job: a\n\tx: 1\n", 2),
        ("a:\n  - b\n\t- c\n", 3),
        ("a:\n  \tb: 1\n   c: 2\n", 2),
    ],
)
def test_a_tab_is_answered_with_indent_with_spaces(text: str, line: int) -> None:
    with pytest.raises(JobFileError, match="indent with spaces") as caught:
        parse_job_text(text, "o.yaml")
    assert caught.value.what == f"o.yaml:{line} is not YAML"
