"""Every error keeps its facts on the way from an executor, and answers a person's questions."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest

from rangeland import errors
from rangeland.connection.failures import ConnectionClosed
from rangeland.decode.jafka.layout import SetFault, UndecodableEntry
from rangeland.decode.kafka.layout import Fault, UndecodableRecord
from rangeland.decode.rocketmq.layout import StoredFault, UndecodableMessage
from rangeland.dialects.protocol_session import LoginClosed
from rangeland.errors import BadRecord, Damage, RangelandError, Unreachable
from rangeland.loss import Loss, LossKind
from rangeland.model import Partition

EVERY_CLASS = [
    cls
    for _, cls in sorted(vars(errors).items())
    if inspect.isclass(cls) and issubclass(cls, RangelandError)
]

# The exit codes of the contract, by class: a scheduler decides by them.
EXIT_CODES = {
    "RangelandError": 70,
    "UsageError": 64,
    "JobFileError": 78,
    "AccessDenied": 78,
    "MissingRequirement": 78,
    "Unreachable": 75,
    "StorageFailed": 75,
    "EngineFailed": 75,
    "RemoteProtocolError": 75,
    "LocalProtocolError": 70,
    "BadRecord": 65,
    "TransformFailed": 65,
    "UndecodablePayload": 65,
    "RangeLost": 66,
    "Conflict": 73,
    "TableRefused": 73,
    "ProofFailed": 70,
    "Bug": 70,
}


def test_every_class_has_the_exit_code_of_the_contract() -> None:
    assert {cls.__name__: cls.exit_code for cls in EVERY_CLASS} == EXIT_CODES


@pytest.mark.parametrize("cls", EVERY_CLASS)
def test_an_error_survives_pickling_with_class_sentence_and_facts(
    cls: type[RangelandError],
) -> None:
    error = cls("orders/0 is gone", why="it went", do="bring it back", partition=0, at=[1, 2])
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is cls
    assert (back.what, back.why, back.do) == ("orders/0 is gone", "it went", "bring it back")
    assert back.facts == {"partition": 0, "at": [1, 2]}
    assert str(back) == str(error)


@pytest.mark.parametrize("cls", EVERY_CLASS)
def test_every_class_says_if_data_is_safe_if_to_retry_and_who_acts(
    cls: type[RangelandError],
) -> None:
    assert cls.data
    assert cls.retry
    assert cls.acts
    assert cls.__doc__


def test_an_error_has_answers_of_its_own_where_more_is_known() -> None:
    error = errors.StorageFailed("the disk is full").with_answers(retry=errors.WITH_ROOM)
    back = pickle.loads(pickle.dumps(error))
    assert (back.retry, back.acts) == (errors.WITH_ROOM, errors.StorageFailed.acts)
    assert errors.error_json(back)["retry"] == "yes, once there is room again"
    assert errors.StorageFailed("another").retry == "yes, once the store works again"


@pytest.mark.parametrize(
    ("operator", "in_doubt", "acts"),
    [
        ("", False, "whoever manages access there"),
        ("", True, "the author of the job file, or whoever manages access there"),
        ("the registry's operator", False, "the registry's operator"),
        ("the registry's operator", True, "the author of the job file, or the registry's operator"),
    ],
)
def test_the_operator_gives_access_and_the_author_first_looks_at_a_login_in_doubt(
    operator: str, in_doubt: bool, acts: str
) -> None:
    error = errors.AccessDenied("no", operator=operator, login_is_in_doubt=in_doubt)
    back = pickle.loads(pickle.dumps(error.with_facts(broker="b")))
    assert (error.acts, back.acts, back.facts) == (acts, acts, {"broker": "b"})


def test_an_error_after_landings_says_that_they_are_landed() -> None:
    error = errors.RangeLost("orders/0 [0, 5)")
    assert error.after_landing(0).data == errors.RangeLost.data
    assert error.after_landing(2).data == (
        "2 plans had been landed completely; after that, no rows from this run were landed; this "
        "log no longer has the lost offsets"
    )


def test_people_see_the_names_of_errors_that_the_runbook_has() -> None:
    class Internal(errors.Unreachable):
        """Derived elsewhere, for callers that tell it apart."""

    assert errors.error_json(Internal("x"))["error"] == "Unreachable"


@pytest.mark.parametrize(
    ("what", "why", "do", "sentence"),
    [
        ("it broke", "", "", "it broke."),
        ("it broke", "rust", "", "it broke: rust."),
        ("it broke", "", "mend it", "it broke. Mend it."),
        ("it broke", "rust", "mend it", "it broke: rust. Mend it."),
        ("it broke", "rust.", "Mend it!", "it broke: rust. Mend it!"),
    ],
)
def test_the_message_says_what_then_why_then_what_to_do(
    what: str, why: str, do: str, sentence: str
) -> None:
    assert str(RangelandError(what, why=why, do=do)) == sentence


def test_a_refused_table_is_no_conflict_and_has_its_exit_code() -> None:
    assert not issubclass(errors.TableRefused, errors.Conflict)
    assert errors.TableRefused.exit_code == errors.Conflict.exit_code
    assert errors.TableRefused.data == errors.Conflict.data
    assert errors.TableRefused.retry != errors.Conflict.retry


@pytest.mark.parametrize(
    ("error", "name", "value"),
    [
        (
            errors.BadRecord("b", why="crc", damage=errors.Damage(3, 7), codec=2),
            "damage",
            errors.Damage(3, 7),
        ),
        (errors.BadRecord("b", why="crc"), "damage", None),
        (LoginClosed("a", step=2), "step", 2),
        (
            errors.RemoteProtocolError("r", length=-1, first_bytes=b"\x15\x03"),
            "first_bytes",
            b"\x15\x03",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_typed_attributes_survive_pickling_and_are_shown_among_the_facts(
    error: RangelandError, name: str, value: object
) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert getattr(back, name) == getattr(error, name) == value
    assert back.facts == error.facts


def test_facts_that_are_not_known_are_not_shown() -> None:
    assert errors.BadRecord("b", damage=errors.Damage(3)).facts == {"base_offset": 3}
    assert errors.Unreachable("u").facts == errors.AccessDenied("a").facts == {}


@pytest.mark.parametrize(
    ("what", "why", "do", "message"),
    [
        ("the log begins at 3", "", "", "The log begins at 3."),
        ("no leader", "it moved", "try again", "No leader: it moved. Try again."),
        ("orders/0 has gone", "", "b.yaml", "orders/0 has gone. b.yaml."),
        ("h:9092 is busy", "h: too slow", "wait", "h:9092 is busy: h: too slow. Wait."),
        ("nobody", "", "wait, then try", "Nobody. Wait, then try."),
        ("--set a: no field", "", "Write it!", "--set a: no field. Write it!"),
        ("a.yaml:3: job", "", "--json", "a.yaml:3: job. --json."),
    ],
)
def test_a_message_is_sentences_and_names_keep_their_spelling(
    what: str, why: str, do: str, message: str
) -> None:
    assert errors.Conflict(what, why=why, do=do).message == message


def test_a_login_that_was_closed_is_shown_as_denied_access_with_its_step() -> None:
    shown = errors.error_json(LoginClosed("closed", step=2, broker="b1"))
    assert (shown["error"], shown["exit"]) == ("AccessDenied", 78)
    assert shown["facts"] == {"broker": "b1", "closed_at": 2}


def test_words_replace_only_what_they_are_given_for() -> None:
    error = RangelandError("it broke", why="rust", do="mend it", broker="b1")
    copy = error.with_words(what="it stopped", why="age")
    assert (copy.what, copy.why, copy.do) == ("it stopped", "age", "mend it")
    assert (copy.facts, repr(copy)) == ({"broker": "b1"}, "RangelandError('it stopped')")
    assert (error.what, error.why) == ("it broke", "rust")


VALUES: dict[str, Any] = {
    "length": -1,
    "first_bytes": b"\x15\x03",
    "damage": Damage(4, 7),
    "log": errors.DamagedLog(Partition("orders", 0), 3),
    "losses": (Loss(Partition("orders", 0), 1, 2, LossKind.EXPIRED, "too old"),),
}
ANSWERS = {"data": "safe", "retry": "at noon", "acts": "the janitor"}


def test_the_values_are_those_that_errors_have() -> None:
    parameters = {name for cls in EVERY_CLASS for name in inspect.signature(cls).parameters}
    usual = {"what", "why", "do", "facts", "operator", "login_is_in_doubt"}
    assert parameters - usual == VALUES.keys()


@pytest.mark.parametrize("cls", [*EVERY_CLASS, ConnectionClosed])
def test_an_error_keeps_its_values_and_answers_in_other_words_and_when_pickled(
    cls: type[RangelandError],
) -> None:
    has = inspect.signature(cls).parameters
    values = {name: value for name, value in VALUES.items() if name in has}
    error = cls("it broke", broker="b1", **values).with_answers(**ANSWERS)
    for same in (error.with_words(why="age"), pickle.loads(pickle.dumps(error))):
        assert type(same) is cls
        assert {name: getattr(same, name) for name in values} == values
        assert same.facts == error.facts
        assert {name: getattr(same, name) for name in ANSWERS} == ANSWERS


@pytest.mark.parametrize(
    "error",
    [
        UndecodableEntry(SetFault.WRONG_CHECKSUM, 1, 2, 3),
        UndecodableRecord(Fault.BATCH_ENDS, 1, 2, 3),
        UndecodableMessage(StoredFault.ORDER, 1, 2),
        LoginClosed("closed", step=2, operator="me"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_with_a_constructor_of_its_own_can_be_copied(error: RangelandError) -> None:
    copy = pickle.loads(pickle.dumps(error.with_words(what="other words")))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error) | {"what": "other words"}


def test_a_bad_record_can_be_given_its_damage_and_its_log() -> None:
    error = BadRecord("bad", damage=Damage(4, 7), codec=2)
    assert error.with_values(damage=Damage(5)).facts == {"codec": 2, "base_offset": 5}
    located = error.with_values(log=errors.DamagedLog(Partition("orders", 0)))
    assert (located.damage, located.facts["topic"]) == (Damage(4, 7), "orders")


def test_a_failure_of_a_connection_has_the_words_and_facts_of_its_reason() -> None:
    reason = Unreachable("no token", why="busy", do="wait", closed=True, port=1)
    found = ConnectionClosed.because_of(reason)
    assert type(found) is ConnectionClosed
    assert (found.what, found.why, found.do) == ("no token", "busy", "wait")
    assert found.facts == {"port": 1, "closed": True}
    found = ConnectionClosed.because_of(LoginClosed("no", operator="me", step=2))
    assert (found.facts, found.acts) == ({"closed_at": 2}, ConnectionClosed.acts)
