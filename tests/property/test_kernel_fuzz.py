"""The compiled kernel alone, with bytes that nobody has thought of, under gcc's sanitizers.

Hypothesis holds the kernel to its reference with a few hundred examples; this only asks, hundreds
of thousands of times, that it touches no memory but its own. It begins with what other tests write,
and with the files in ``corpus``. A failure prints the seed to run again.
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
from tests.property.sanitizers import FLAGS
from tests.record_batches import Batch, Record, encode, encode_records
from tests.rocketmq_messages import LZ4, PACKED, batch, inner, messages, properties_of, stored

CORPUS = Path(__file__).with_name("corpus")
SEED = int(os.environ.get("RANGELAND_SEED", "1"))
RUNS = int(os.environ.get("RANGELAND_RUNS", "300000"))


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


@pytest.mark.slow
def test_the_kernel_touches_no_memory_but_its_own(tmp_path: Path) -> None:
    source, folder = Path(__file__).with_name("kernel_fuzz.c"), Path(native_library.__file__).parent
    built = tmp_path / "fuzz"
    flags = [flag for flag in FLAGS.split() if flag not in ("-shared", "-fPIC")]
    command = ["gcc", *flags, f"-I{folder}", "-o", str(built), str(source)]
    subprocess.run(command, check=True)
    files = sorted(str(path) for path in CORPUS.glob("*"))
    for number, data in enumerate(seeds()):
        path = tmp_path / f"seed-{number}"
        path.write_bytes(data)
        files.append(str(path))
    command = [str(built), str(SEED), str(RUNS), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {SEED}: {done.stderr[-4000:]}"
    assert f"{RUNS} runs" in done.stdout
