"""Decides the result if a slice cannot be read as planned: a loss with its action, or the error
that ends the run. ``loss_judgement`` judges damage and gaps, and applies the policy to any loss.
"""

from __future__ import annotations

from typing import Any

from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import (
    BadRecord,
    DamagedLog,
    RangelandError,
    RemoteProtocolError,
    Unreachable,
)
from rangeland.fetch.loss_judgement import decide_loss, inspection_advice
from rangeland.fetch.slice_state import Fail, Observation, SliceEvent, SliceState
from rangeland.loss import DecidedLoss, Loss, LossKind, partition_facts
from rangeland.planning.policy import Policy

SUSPECTED_MS = 5_000
"""At the deadline, a loss is assumed only if it has been suspected for this long without
interruption, or for half of the available time if that is shorter."""


def lost_observation(decided: DecidedLoss | Fail) -> Observation | Fail:
    """The observation that offsets are lost; or the error that ends the run, as it is."""
    return decided if isinstance(decided, Fail) else Observation(SliceEvent.LOST, loss=decided)


def rest_lost_observation(
    state: SliceState,
    policy: Policy,
    kind: LossKind,
    evidence: str,
    *,
    until_offset: int | None = None,
    error: RangelandError | None = None,
) -> Observation | Fail:
    """The observation that the rest of a slice is lost, up to ``until_offset`` or to its end.
    ``error`` as in ``decide_loss``."""
    slice_ = state.slice
    until_offset = until_offset or slice_.until_offset
    loss = Loss(slice_.partition, state.next_offset, until_offset, kind, evidence)
    return lost_observation(decide_loss(loss, policy, slice_, error))


def stuck_observation(
    state: SliceState, policy: Policy, now_ms: int, no_progress_ms: int
) -> Observation | Fail:
    """The observation that the rest of a slice is lost, because the slice has made no progress for
    too long. The loss is the suspected one, unless the suspicion has only just begun: a broker may
    have just started. Otherwise, the slice is unreachable."""
    suspicion = state.suspicion
    enough_ms = min(SUSPECTED_MS, no_progress_ms // 2)
    if suspicion is not None and now_ms - suspicion.since_ms >= enough_ms:
        return rest_lost_observation(state, policy, suspicion.kind, suspicion.evidence)
    error = no_progress_error(state)
    evidence = f"{error.what}: {error.why}"
    return rest_lost_observation(state, policy, LossKind.UNREACHABLE, evidence, error=error)


def _state_facts(state: SliceState) -> dict[str, Any]:
    return {
        **partition_facts(state.slice.partition),
        "from_offset": state.slice.from_offset,
        "until_offset": state.slice.until_offset,
        "position": state.next_offset,
        "leader": str(state.broker.address) if state.broker.address else None,
    }


def no_progress_error(state: SliceState) -> Unreachable:
    return Unreachable(
        f"{state.slice} got no further than offset {state.next_offset} in "
        f"{state.retry.stuck_ms} ms",
        why=state.retry.last_failure or "its leader sent no records",
        do="check the partition's leader, then run again: the same plan is read again",
        **_state_facts(state),
    )


def older_records_error(
    state: SliceState, next_offset: int, capabilities: Capabilities
) -> BadRecord:
    return _bad_record_error(
        state,
        f": a fetch at offset {state.next_offset} returned entries that end at {next_offset}",
        "the response has only older records, so reading would never end",
        inspection_advice("the log segment", capabilities),
    )


def entry_size_error(state: SliceState, capabilities: Capabilities) -> BadRecord:
    return _bad_record_error(
        state,
        f": no complete entry at offset {state.next_offset} in {state.size.bytes} bytes",
        "it is longer than source.max_answer_bytes allows, or its length field is damaged",
        f"raise source.max_answer_bytes if the topic has such entries; otherwise "
        f"{inspection_advice('the entry', capabilities)}",
    )


def unreadable_error(state: SliceState, reason: str) -> BadRecord:
    what = f" cannot be read at offset {state.next_offset}"
    do = "check the log segment on the leader, or its disk"
    return _bad_record_error(state, what, reason, do)


def _bad_record_error(state: SliceState, what: str, why: str, do: str) -> BadRecord:
    """``what`` follows the name of the partition."""
    partition = state.slice.partition
    log = DamagedLog(partition, state.next_offset)
    return BadRecord(f"{partition}{what}", why=why, do=do, log=log, **_state_facts(state))


def refused_error(state: SliceState, meaning: ErrorMeaning, reason: str) -> RangelandError:
    """The error for a request that would be refused again."""
    what, do = f"{state.slice} cannot be read", "check source, and the version of the broker"
    if meaning is ErrorMeaning.DENIED:
        what = f"{state.slice} may not be read"
        do = "give the user of source.security the right to read the topic"
    return meaning.refusal_error(what, why=reason, do=do, **_state_facts(state))


def wrong_code_error(state: SliceState, reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{state.slice} cannot be read",
        why=f"{reason}, which is not a valid response to a fetch",
        do="check the version of the broker",
        **_state_facts(state),
    )
