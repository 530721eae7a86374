"""A plan file holds a plan and its job completely, keeps secrets out, and reveals any edit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rangeland.errors import Conflict, JobFileError, UsageError
from rangeland.job import Job
from rangeland.job.job_text import override, parse_job_text
from rangeland.job.topic_tables import job_of_topic
from rangeland.landing.drafts.plan_file import (
    PlanFolder,
    job_of_plan,
    read_plan_file,
    write_plan_file,
)
from rangeland.loss import Action, LossKind
from rangeland.planning.plan import canonical
from tests import sample_results as made

TEXT = parse_job_text(made.JOB_YAML, "orders.yaml")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    loss = made.a_loss(0, 1_000, 1_100)
    held = (made.a_loss(3, 1, 2, LossKind.RECREATED).with_action(Action.HOLD),)
    preview = made.a_preview(losses=[loss], held=held)
    seen = replace(
        preview.draft,
        skipped_losses=(made.a_loss(1, 9_000, 9_500, LossKind.TRUNCATED).with_action(Action.SKIP),),
    )
    write_plan_file(path, replace(preview, draft=seen, location="file:/srv/lake/orders"), TEXT)
    return path


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document, indent=2))
    return path


def test_plan_and_job_come_back_as_they_were(file: Path) -> None:
    found = read_plan_file(file)
    assert found.plan == made.a_preview(losses=[made.a_loss(0, 1_000, 1_100)]).draft.plan
    assert found.job == Job.of(TEXT)


def test_the_table_stays_where_it_was_when_the_plan_was_made(file: Path) -> None:
    found = read_plan_file(file)
    assert found.location == "file:/srv/lake/orders"
    placed = found.in_place(found.job)
    assert placed.sink.table == "file:/srv/lake/orders"
    assert placed.sink.model_copy(update={"table": "lake/orders"}) == found.job.sink


@pytest.fixture
def file_of_topic(tmp_path: Path) -> Path:
    """The plan of one topic of a file that has a table for each."""
    template = override(TEXT, ["sink.table=lake/{topic}"])
    _, text = job_of_topic(Job.of(template), template, "orders")
    path = tmp_path / "plan.json"
    write_plan_file(path, made.a_preview(), text)
    return path


@pytest.mark.parametrize("settings", [[], ["limits.max_records=10"]])
def test_the_job_of_a_topic_stays_that_of_the_topic(
    file_of_topic: Path, settings: list[str]
) -> None:
    found = read_plan_file(file_of_topic)
    assert found.job_with(settings).name_with_topic == "orders.orders"
    assert job_of_plan(found, None, settings).name_with_topic == "orders.orders"


def test_a_file_without_a_topic_does_not_mention_one(file: Path, file_of_topic: Path) -> None:
    assert json.loads(file_of_topic.read_text())["topic"] == "orders"
    reviewed = read_plan_file(file_of_topic)
    without = read_plan_file(sealed(file_of_topic, 3, "topic", table="lake/orders"))
    assert (reviewed.topic, without.topic) == ("orders", "")
    assert without.job.name_with_topic == "orders"


def test_a_topic_that_the_job_does_not_read_is_refused(file_of_topic: Path) -> None:
    change(file_of_topic, lambda d: d.update(topic="returns"))
    with pytest.raises(Conflict, match="its topic is returns"):
        read_plan_file(sealed(file_of_topic, 3))


def test_a_name_in_a_catalog_is_left_as_it_is(tmp_path: Path) -> None:
    text = override(TEXT, ["sink.table=main.sales.orders"])
    write_plan_file(tmp_path / "p", made.a_preview(), text)
    found = read_plan_file(tmp_path / "p")
    assert found.in_place(found.job) == found.job


def test_what_is_held_and_what_is_passed_over_come_back_with_the_incarnation_they_were_seen_in(
    file: Path,
) -> None:
    assert read_plan_file(file).unplanned_losses == (
        made.a_loss(3, 1, 2, LossKind.RECREATED).with_action(Action.HOLD),
        replace(made.a_loss(1, 9_000, 9_500, LossKind.TRUNCATED), topic_id="t1").with_action(
            Action.SKIP
        ),
    )


def test_a_file_of_the_format_before_is_taken_and_tells_of_no_losses_beside_it(
    file: Path,
) -> None:
    whole, found = read_plan_file(file), read_plan_file(sealed(file, 2, "seen"))
    assert (found.plan, found.location, found.unplanned_losses) == (whole.plan, whole.location, ())


def sealed(path: Path, number: int, *lacking: str, table: str = "lake/orders") -> Path:
    """The file as an earlier format wrote it, whole and sealed."""
    document = json.loads(path.read_text())
    for key in ("seal", *lacking):
        del document[key]
    document["rangeland_plan_file"] = number
    document["job"]["sink"]["table"] = table
    document["seal"] = hashlib.sha256(canonical(document).encode()).hexdigest()
    path.write_text(json.dumps(document))
    return path


def earlier(path: Path, table: str) -> Path:
    return sealed(path, 1, "seen", "location", table=table)


@pytest.mark.parametrize("table", ["/lake/orders", "s3a://lake/orders", "main.sales.orders"])
def test_a_file_of_the_earlier_format_is_taken_where_its_table_is_given(
    file: Path, table: str
) -> None:
    found = read_plan_file(earlier(file, table))
    assert found.in_place(found.job).sink.table == table


@pytest.mark.parametrize("table", ["lake/orders", "orders", "../orders"])
def test_a_file_of_the_earlier_format_is_refused_where_its_table_could_be_anywhere(
    file: Path, table: str
) -> None:
    with pytest.raises(Conflict, match=f"in which folder its table {table} is"):
        read_plan_file(earlier(file, table))


def test_offsets_and_overrides_of_the_job_come_back(tmp_path: Path) -> None:
    text = override(TEXT, ["range.from={orders: {0: 23, 1: earliest}}", "limits.max_records=7"])
    write_plan_file(tmp_path / "p", made.a_preview(), text)
    job = read_plan_file(tmp_path / "p").job
    assert job == Job.of(text)
    assert job.limits.max_records == 7


def test_secrets_stay_references(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", "hunter2")
    job = read_plan_file(file).job
    assert "hunter2" not in file.read_text()
    assert job.source.security.sasl is not None
    assert job.source.security.sasl.password == "${env:ORDERS_PASSWORD}"


def test_a_file_can_be_compared_line_by_line(file: Path) -> None:
    lines = file.read_text().splitlines()
    assert '      "until_offset": 26000,' in lines or '        "until_offset": 26000,' in lines
    assert max(map(len, lines)) < 120


def test_layout_and_order_are_not_what_the_seal_is_about(file: Path) -> None:
    document = json.loads(file.read_text())
    file.write_text(json.dumps(dict(sorted(document.items(), reverse=True))))
    read_plan_file(file)


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d["plan"]["ranges"][0].update(until_offset=9),
        lambda d: d["plan"].update(sequence=13),
        lambda d: d["plan"].update(extra=1),
        lambda d: d.update(hash="0" * 64),
        lambda d: d.pop("plan"),
        lambda d: d["job"]["sink"].update(table="lake/other"),
        lambda d: d["job"].pop("limits"),
        lambda d: d["summary"].update(records=1),
        lambda d: d.update(seal=None),
        lambda d: d.pop("seal"),
        lambda d: d.update(location="file:/srv/lake/other"),
        lambda d: d.pop("location"),
        lambda d: d.pop("job"),
        lambda d: d["seen"].pop(),
        lambda d: d.update(note="looks good"),
    ],
)
def test_an_edited_file_is_refused(file: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    change(file, edit)
    with pytest.raises(Conflict, match="was changed after it was written"):
        read_plan_file(file)


def test_a_file_of_another_version_is_refused(file: Path) -> None:
    change(file, lambda d: d.update(rangeland_plan_file=4))
    with pytest.raises(Conflict, match="format 4"):
        read_plan_file(file)


@pytest.mark.parametrize("content", [b"job: orders\n", b"[]", b"{}", b"3", b"\xff\xfe", b""])
def test_something_else_is_not_a_plan_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "orders.yaml"
    path.write_bytes(content)
    with pytest.raises(JobFileError, match="is not a plan file"):
        read_plan_file(path)


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_plan_file(tmp_path / "nowhere.json")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        write_plan_file(tmp_path / "no" / "plan.json", made.a_preview(), TEXT)
    folder = tmp_path / "taken"
    folder.mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        write_plan_file(folder, made.a_preview(), TEXT)
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


# --- sealed again ---------------------------------------------------------------------------


def test_jobs_of_one_name_that_land_in_several_tables_have_a_plan_file_each(
    tmp_path: Path,
) -> None:
    folder = PlanFolder(tmp_path)
    tables = {f"lake/{n}" for n in range(4)}
    for table in sorted(tables):
        preview = replace(made.a_preview(), table=table, location=f"file:/srv/{table}")
        folder.write("orders", preview, TEXT)
    found = sorted(tmp_path.iterdir())
    assert tmp_path / "orders.json" in found
    assert {read_plan_file(path).location for path in found} == {f"file:/srv/{t}" for t in tables}


def test_plan_files_of_jobs_whose_names_differ_in_case_alone_have_different_names(
    tmp_path: Path,
) -> None:
    folder = PlanFolder(tmp_path)
    for name in ("orders", "Orders"):
        folder.write(name, made.a_preview(), TEXT)
    assert len({path.name.casefold() for path in tmp_path.iterdir()}) == 2


def reseal(path: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    """As somebody does who means it: hash and seal fit what is there."""
    document = json.loads(path.read_text())
    edit(document)
    del document["seal"]
    document["hash"] = hashlib.sha256(canonical(document["plan"]).encode()).hexdigest()
    document["seal"] = hashlib.sha256(canonical(document).encode()).hexdigest()
    path.write_text(json.dumps(document))
    return path


def of_range(**values: Any) -> Callable[[dict[str, Any]], object]:
    def edit(document: dict[str, Any]) -> None:
        document["plan"]["ranges"][0].update(values)
        document["plan"]["slices"][0].update(values)

    return edit


@pytest.mark.parametrize(
    "edit",
    [
        of_range(from_offset="1"),
        of_range(until_offset="26000"),
        of_range(until_offset=26_000.0),
        of_range(until_offset=None),
        of_range(from_offset=26_001),
        of_range(from_offset=-1),
        of_range(until_offset=2**63),
        of_range(until_offset=10**400),
        of_range(estimated_bytes="many"),
        of_range(estimated_bytes=-1),
        of_range(partition=2**31),
        of_range(partition=True),
        of_range(topic=7),
        of_range(topic="payments"),
        of_range(broker=["b"]),
        of_range(topic_id=1),
        lambda d: d["plan"]["slices"][0].update(from_offset=1_200),
        lambda d: d["plan"]["slices"][0].update(until_offset=25_999),
        lambda d: d["plan"]["slices"][0].update(index=1),
        lambda d: d["plan"]["slices"][0].update(leader="h:99999"),
        lambda d: d["plan"]["slices"].pop(),
        lambda d: d["plan"]["slices"].append(d["plan"]["slices"][0] | {"index": 9}),
        lambda d: d["plan"]["ranges"].append(d["plan"]["ranges"][0]),
        lambda d: d["plan"]["losses"].clear(),
        lambda d: d["plan"]["losses"][0].update(until_offset="1100"),
        lambda d: d["plan"]["checkpoint"][0].update(until_offset="1"),
        lambda d: d["plan"]["checkpoint"][0].update(epoch="1"),
        lambda d: d["plan"].update(sequence="12"),
        lambda d: d["plan"].update(sequence=-1),
        lambda d: d["plan"].update(made_at_ms=10**18),
        lambda d: d["plan"].update(job="payments"),
        lambda d: d["plan"].update(application="rangeland/payments"),
        lambda d: d["plan"].update(tags="A"),
        lambda d: d["plan"].update(replaces="no"),
        lambda d: d["plan"].update(ranges={}),
        lambda d: d.update(job=[]),
        lambda d: d.update(job="orders"),
        lambda d: d.update(location=1),
        lambda d: d.update(location=""),
        lambda d: d.update(location="a\0b"),
        lambda d: d.update(location="s3a://key:secret@bucket/t"),
        lambda d: d["plan"].update(dialect="jafka"),
        lambda d: d.update(seen={}),
        lambda d: d["seen"][0].update(action="steal"),
        lambda d: d["seen"][0].update(from_offset="1"),
        lambda d: d.update(rangeland_plan_file=True),
        lambda d: d.update(rangeland_plan_file=[3]),
    ],
)
def test_what_is_sealed_again_is_checked_as_any_input_is(
    file: Path, edit: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(Conflict) as caught:
        read_plan_file(reseal(file, edit))
    assert "was changed after it was written" not in str(caught.value)


def test_a_plan_file_with_a_key_twice_is_not_one(file: Path) -> None:
    file.write_text(file.read_text().replace('"job": {', '"job": {}, "job": {', 1))
    with pytest.raises(JobFileError, match="duplicate key"):
        read_plan_file(file)


def test_a_plan_that_is_sealed_again_unchanged_is_read(file: Path) -> None:
    whole = read_plan_file(file)
    assert read_plan_file(reseal(file, lambda d: None)).plan == whole.plan
