"""The lease that a command holds while it lands, and no longer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rangeland.job import Job
from rangeland.job_group import run_lease
from rangeland.job_group.lease import GroupLease
from rangeland.job_group.run_lease import RunLease
from rangeland.model import Survey
from tests.fakes.landing import landing_context


class Lease:
    """A lease of which only the membership and the calls of ``mirror`` matter."""

    def __init__(self, *, is_member: bool = True) -> None:
        self.is_member = is_member
        self.mirrored = 0

    def mirror(self, *about: object, **more: object) -> None:
        self.mirrored += 1


def lease_of(monkeypatch: pytest.MonkeyPatch, lease: Lease | None) -> RunLease:
    @contextmanager
    def hold_lease(*about: object) -> Iterator[GroupLease | None]:
        yield cast(GroupLease | None, lease)

    monkeypatch.setattr(run_lease, "hold_lease", hold_lease)
    job = Job.parse(
        "job: orders\nsource: {servers: [b1:9092], topics: [orders]}\n"
        "sink: {table: lake/orders}\ngroup: {id: orders}\n"
    )
    surveys: Any = SimpleNamespace(early=lambda: Survey(0, {}))
    return RunLease(landing_context(None, job, surveys=surveys))


@pytest.mark.parametrize("error", [None, RuntimeError("the command has failed")])
def test_a_lease_that_was_released_is_not_used(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Lease()
    lease = lease_of(monkeypatch, held)
    try:
        with lease.hold():
            assert lease.shared_reader() is not None
            lease.mirror()
            if error is not None:
                raise error
    except RuntimeError:
        assert error is not None
    assert lease.shared_reader() is None
    lease.mirror()
    assert held.mirrored == 1


@pytest.mark.parametrize("held", [None, Lease(is_member=False)])
def test_a_driver_without_members_beside_it_reads_alone(
    held: Lease | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lease_of(monkeypatch, held)
    with lease.hold():
        assert lease.shared_reader() is None
