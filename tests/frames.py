"""Frames out of bytes that have arrived, as tests have them: without a socket."""

from __future__ import annotations

from rangeland.wire.framing import FrameReader


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
