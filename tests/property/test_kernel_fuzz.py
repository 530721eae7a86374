"""The compiled kernel alone, with bytes that nobody has thought of, under gcc's sanitizers.

Hypothesis holds the kernel to its reference with a few hundred examples; this only asks, tens of
thousands of times, or millions in the slow run, that it touches no memory but its own. It begins
with what other tests write, and with the files in ``corpus``. A failure prints the seed to run
again.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rangeland.decode.native import native_library
from tests.jafka_entries import plain
from tests.message_sets import Message, encode_all
from tests.property import payload_tables
from tests.property.sanitizers import FLAGS
from tests.record_batches import Batch, Record, encode, encode_records
from tests.rocketmq_messages import LZ4, PACKED, batch, inner, messages, properties_of, stored

CORPUS = Path(__file__).with_name("corpus")
SEED = int(os.environ.get("RANGELAND_SEED", "1"))
RUNS = int(os.environ.get("RANGELAND_RUNS", "3000000"))
SHORT_RUNS = 30_000


def seeds() -> Iterator[bytes]:
    """What is called, as in ``kernel_fuzz.c``, and well-formed data for it."""
    records = [
        Record(None, b"v" * n, ((b"h", None), (b"\xc3\xa9", b"1")) * (n % 3), n) for n in range(20)
    ]
    yield b"\0" + encode_records(records)
    yield b"\x06" + b"".join(encode(Batch(4 * n, records[:4])) for n in range(5))
    for magic in (0, 1):
        some = [Message(n, b"k" * (n % 3), b"v" * n, magic) for n in range(12)]
        yield bytes([1 + magic]) + encode_all(some)
        yield b"\x05" + encode_all(some)
    named = properties_of(("TAGS", "A"), ("KEYS", "a b"), ("\u00e9", "1"))
    yield b"\x03" + messages([b"v" * n for n in range(9)], 3, named)
    yield b"\x03" + stored(b"x", 1, named, flags=PACKED | LZ4 << 8 | 0x30)
    yield b"\x03" + stored(b"x", 1) + batch([inner(b"v", named)] * 4, 2)
    yield b"\x04" + plain(b"v" * n for n in range(20))
    yield b"\x07" + payload_tables.AVRO_PAYLOAD
    yield b"\x08" + payload_tables.PROTOBUF_PAYLOAD
    yield b"\x09" + payload_tables.JSON_PAYLOAD


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the built fuzzer, without seed and runs, and the files it begins with."""
    source, folder = Path(__file__).with_name("kernel_fuzz.c"), Path(native_library.__file__).parent
    place = tmp_path_factory.mktemp("fuzz")
    flags = [flag for flag in FLAGS.split() if flag not in ("-shared", "-fPIC")]
    (place / "payload_tables.h").write_text(payload_tables.as_c())
    command = ["gcc", *flags, f"-I{folder}", f"-I{place}", "-o", str(place / "fuzz"), str(source)]
    subprocess.run(command, check=True)
    files = sorted(str(path) for path in CORPUS.glob("*"))
    for number, data in enumerate(seeds()):
        path = place / f"seed-{number}"
        path.write_bytes(data)
        files.append(str(path))
    return [str(place / "fuzz"), *files]


def run(fuzzer: list[str], runs: int) -> None:
    built, *files = fuzzer
    command = [built, str(SEED), str(runs), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {SEED}: {done.stderr[-4000:]}"
    assert f"{runs} runs" in done.stdout


def test_a_short_run_touches_no_memory_but_its_own(fuzzer: list[str]) -> None:
    run(fuzzer, SHORT_RUNS)


@pytest.mark.slow
def test_the_kernel_touches_no_memory_but_its_own(fuzzer: list[str]) -> None:
    run(fuzzer, RUNS)
