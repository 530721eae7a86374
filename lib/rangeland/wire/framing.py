"""The framing that all dialects share: a length of four bytes, then that many bytes. There is no
socket here.

The owner of a socket receives into ``buffer`` and calls ``advance`` with the number of bytes
received. A large frame is received directly into memory of its own and passed on as a view, so its
slices stay valid for as long as they are referenced, and nothing is copied. Several small frames
may be received at once: then they are views of the same memory.

A length is accepted only up to ``max_frame_bytes``; if it is greater, the peer most likely speaks
another protocol, and the error names that protocol if its first bytes are known.
"""

from __future__ import annotations

from collections.abc import Callable

from rangeland.errors import Bug, LocalProtocolError, RemoteProtocolError
from rangeland.wire.primitives import MAX_LENGTH, Buffer

LENGTH_BYTES = 4
SHARED_BY = 4
"""The smallest number of frames that share memory."""

_CHECK = "check host and port"


class FrameReader:
    """The receiving half of one connection. It must not be used again after an error.

    ``max_frame_bytes`` does not include the length itself. ``allocate`` returns writable memory for
    a frame of that many bytes; its contents do not matter. Up to ``ahead_bytes`` are received at a
    time, so several frames may arrive together: ``next`` returns those after the first. If it is 0,
    no byte of the next frame is received before this one is complete.
    """

    def __init__(
        self,
        max_frame_bytes: int,
        allocate: Callable[[int], memoryview] | None = None,
        ahead_bytes: int = 0,
    ) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._allocate = allocate or (lambda size: memoryview(bytearray(size)))
        self._shared_bytes = max(LENGTH_BYTES, ahead_bytes)
        self._shared = memoryview(b"")
        self._start = self._end = 0
        self._body: memoryview | None = None
        self._filled = 0

    def buffer(self) -> memoryview:
        """The memory into which to receive the next bytes; never empty. Valid until the next
        ``advance``."""
        if self._body is not None:
            return self._body[self._filled :]
        if self._end == len(self._shared):
            self._renew()
        return self._shared[self._end :]

    def advance(self, count: int) -> memoryview | None:
        """Takes the ``count`` bytes that were received into ``buffer``. Returns the frame, without
        its length, once it is complete. Raises ``RemoteProtocolError`` for an invalid length."""
        if not 0 <= count <= len(self.buffer()):
            raise Bug(
                "more bytes were received than asked for", count=count, asked=len(self.buffer())
            )
        if self._body is None:
            self._end += count
            return self.next()
        self._filled += count
        if self._filled < len(self._body):
            return None
        whole = self._body
        self._body = None
        self._filled = 0
        return whole

    def next(self) -> memoryview | None:
        """A frame that has already arrived; None if there is no complete one. Raises what
        ``advance`` raises."""
        start = self._start + LENGTH_BYTES
        if self._body is not None or self._end < start:
            return None
        length = self._require_length()
        end = start + length
        if end <= self._end:
            self._start = end
            return self._shared[start:end]
        if LENGTH_BYTES + length > self._shared_bytes // SHARED_BY:
            self._body = self._allocate(length)
            self._filled = self._end - start
            self._body[: self._filled] = self._shared[start : self._end]
            self._start = self._end
        elif end > len(self._shared):
            self._renew()
        return None

    def _renew(self) -> None:
        """New memory that begins with the incomplete frame, because the old memory may still be in
        use."""
        rest = self._shared[self._start : self._end]
        self._shared = self._allocate(self._shared_bytes)
        self._shared[: len(rest)] = rest
        self._start, self._end = 0, len(rest)

    def _require_length(self) -> int:
        first = bytes(self._shared[self._start : self._start + LENGTH_BYTES])
        length = int.from_bytes(first, "big", signed=True)
        if 0 <= length <= self._max_frame_bytes:
            return length
        why = "it is negative" if length < 0 else f"at most {self._max_frame_bytes} are accepted"
        do = "check host and port, or raise the largest frame that is accepted"
        if (protocol := _other_protocol(first)) is not None:
            why += f": the peer seems to speak {protocol}"
            do = "set the job's security, or use its plain port" if protocol == "TLS" else _CHECK
        raise RemoteProtocolError(
            f"a frame of {length} bytes was announced",
            why=why,
            do=do,
            length=length,
            max_frame_bytes=self._max_frame_bytes,
            first_bytes=first,
        )


def _other_protocol(first: bytes) -> str | None:
    """The protocol of a peer whose first four bytes are not a valid length, if it is recognised."""
    # A TLS record: alert (21) or handshake (22), then the major version 3.
    if first[0] in (0x15, 0x16) and first[1] == 3:
        return "TLS"
    return {b"HTTP": "HTTP", b"GET ": "HTTP", b"POST": "HTTP", b"SSH-": "SSH"}.get(first)


def frame(*payload: Buffer) -> bytes:
    """The joined ``payload`` preceded by its length, ready to be sent."""
    length = sum(len(part) for part in payload)
    if length > MAX_LENGTH:
        raise LocalProtocolError(
            "a frame is too long to be sent", why=f"{length} > {MAX_LENGTH}", length=length
        )
    return b"".join((length.to_bytes(LENGTH_BYTES, "big"), *payload))
