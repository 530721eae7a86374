"""Writes losses to the log, for those who act on what others have decided."""

from __future__ import annotations

import logging

from rangeland.logging_setup import partition_fields
from rangeland.loss import DecidedLoss

logger = logging.getLogger(__name__)


def log_loss(loss: DecidedLoss) -> None:
    extra = partition_fields(loss.partition, loss.from_offset)
    logger.warning("Applied policy %s: %s: %s", loss.action, loss, loss.evidence, extra=extra)
