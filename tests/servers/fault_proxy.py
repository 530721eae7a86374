"""A proxy between a client and real brokers of any dialect, which injects faults by seed.

It listens on its own port for each broker and replaces the addresses of brokers in responses, so
that clients cannot bypass it. It cuts connections before or within a response, delays or slows
down responses, or replaces them by errors; a `Faults` says how often. The same seed makes the
same choices for the nth connection, as long as its responses are the same.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Self

from rangeland.testing.context_managers import Startable
from tests.servers.proxied_protocols import CONVERSATIONS, Conversation, ProxiedResponse

LENGTH_BYTES = 4
CHUNKS_PER_SECOND = 20


@dataclass(frozen=True, slots=True)
class Faults:
    """Shares of 1. ``refused``: of connections, closed before a byte is answered. Of responses:
    ``cut`` in the middle, ``delayed`` by ``delay_s``, ``failed`` with one of ``codes`` (of those
    that bring records; none: the dialect's own choice). ``bytes_per_second``: 0 is no limit."""

    seed: int
    refused: float = 0.0
    cut: float = 0.0
    delayed: float = 0.0
    delay_s: float = 0.1
    failed: float = 0.0
    codes: tuple[int, ...] = ()
    bytes_per_second: int = 0


CALM = Faults(0)


class Proxy(Startable):
    """``addresses`` are those of the proxy, in the order of ``brokers``. ``done`` counts what it
    did, by the names of the shares."""

    def __init__(self, dialect: str, brokers: Sequence[str]) -> None:
        self._dialect = dialect
        self._brokers = tuple(brokers)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._ports: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._connections = 0
        self._faults = CALM
        self.done: Counter[str] = Counter()
        self.addresses: tuple[str, ...] = ()

    def start(self) -> Self:
        self._thread.start()
        self.addresses = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def make(self, faults: Faults) -> None:
        """From now on, on open connections, too."""
        self._faults = faults
        self.done.clear()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- in the loop's thread -----------------------------------------------------------

    async def _listen(self) -> tuple[str, ...]:
        return tuple(self._relocate(broker) for broker in self._brokers)

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _relocate(self, broker: str) -> str:
        """The proxy's address for a broker; it listens there at once."""
        if broker not in self._ports:
            bound = socket.create_server(("127.0.0.1", 0))
            self._ports[broker] = f"127.0.0.1:{bound.getsockname()[1]}"
            self._do(self._serve(broker, bound))
        return self._ports[broker]

    async def _serve(self, broker: str, bound: socket.socket) -> None:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._do(self._connect(broker, reader, writer))

        self._servers.append(await asyncio.start_server(accepted, sock=bound))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(
        self, broker: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._connections += 1
        chance = random.Random(f"{self._faults.seed} {self._connections}")
        host, _, port = broker.rpartition(":")
        ends = [writer]
        try:
            if self._happens(chance, "refused", self._faults.refused):
                return
            responses, requests = await asyncio.open_connection(host, int(port))
            ends.append(requests)
            talk = CONVERSATIONS[self._dialect](self._relocate)
            there = asyncio.ensure_future(_forward_requests(reader, requests, talk))
            back = asyncio.ensure_future(self._forward_responses(responses, writer, talk, chance))
            try:
                await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
            finally:
                there.cancel()
                back.cancel()
                await asyncio.gather(there, back, return_exceptions=True)
        except OSError:
            return  # the broker is not there: neither is the proxy
        finally:
            for end in ends:
                end.transport.abort()

    async def _forward_responses(
        self,
        responses: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        talk: Conversation,
        chance: random.Random,
    ) -> None:
        while True:
            response = talk.on_response(await _frame(responses))
            faults = self._faults
            if self._happens(chance, "delayed", faults.delayed):
                await asyncio.sleep(faults.delay_s)
            frame = self._failed(response, talk, chance) or response.frame
            whole = len(frame).to_bytes(LENGTH_BYTES, "big") + frame
            is_cut = self._happens(chance, "cut", faults.cut)
            await self._write(writer, whole[: chance.randrange(len(whole))] if is_cut else whole)
            if is_cut:
                return

    def _failed(
        self, response: ProxiedResponse, talk: Conversation, chance: random.Random
    ) -> bytes | None:
        if response.failed is None or not self._happens(chance, "failed", self._faults.failed):
            return None
        return response.failed(chance.choice(self._faults.codes or talk.codes))

    def _happens(self, chance: random.Random, what: str, share: float) -> bool:
        happens = chance.random() < share
        self.done[what] += happens
        return happens

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        rate = self._faults.bytes_per_second
        step = max(1, rate // CHUNKS_PER_SECOND) if rate else len(data) or 1
        for start in range(0, len(data), step):
            # Counted before the client has the bytes: it may look at once.
            self.done["slowed"] += bool(rate)
            writer.write(data[start : start + step])
            await writer.drain()
            if rate:
                await asyncio.sleep(1 / CHUNKS_PER_SECOND)


async def _forward_requests(
    reader: asyncio.StreamReader, requests: asyncio.StreamWriter, talk: Conversation
) -> None:
    while True:
        frame = await _frame(reader)
        talk.on_request(frame)
        requests.write(len(frame).to_bytes(LENGTH_BYTES, "big") + frame)
        await requests.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """The next one, without its length. Raises IncompleteReadError at the end."""
    size = await reader.readexactly(LENGTH_BYTES)
    return await reader.readexactly(int.from_bytes(size, "big"))
