"""Frames out of bytes that have arrived, as tests have them: without a socket."""

from __future__ import annotations

from rangeland.wire.framing import LENGTH_BYTES, FrameReader


def feed(reader: FrameReader, data: bytes) -> list[memoryview]:
    """All frames that ``data`` completes."""
    frames = []
    view = memoryview(data)
    while view:
        place = reader.buffer()
        count = min(len(place), len(view))
        place[:count] = view[:count]
        view = view[count:]
        whole = reader.advance(count)
        if whole is not None:
            frames.append(whole)
    return frames


def split_frames(data: bytes) -> list[memoryview]:
    """All frames of which ``data`` consists."""
    return feed(FrameReader(1 << 24), data)


def pending_bytes(reader: FrameReader) -> int:
    """How many bytes of an incomplete frame have arrived; 0 between two frames."""
    if reader._body is None:
        return reader._end - reader._start
    return LENGTH_BYTES + reader._filled
