"""Context managers that start and close servers and clients, whatever happens inside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """A context manager that is open as soon as it is made, and closed when the ``with`` block
    ends."""

    @abstractmethod
    def close(self) -> None:
        """Closes the server or client for good."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Startable(Closing):
    """A context manager that is started when the ``with`` block begins, and closed when it ends."""

    @abstractmethod
    def start(self) -> Self:
        """Starts the server or client, and returns when it is ready for use."""

    def __enter__(self) -> Self:
        return self.start()
