"""Writes the lines that the deciding modules return for logging to the program's log."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from rangeland.fetch.slice_state import LogLine
from rangeland.logging_setup import partition_fields
from rangeland.loss import DecidedLoss

logger = logging.getLogger(__name__)


def log_all(unlogged: Iterable[LogLine | DecidedLoss]) -> None:
    for one in unlogged:
        if isinstance(one, DecidedLoss):
            log_loss(one)
        else:
            extra = partition_fields(one.partition, one.offset) if one.partition else {}
            logger.info("%s", one.text, extra=extra)


def log_loss(loss: DecidedLoss) -> None:
    extra = partition_fields(loss.partition, loss.from_offset)
    logger.warning("Applied policy %s: %s: %s", loss.action, loss, loss.evidence, extra=extra)
