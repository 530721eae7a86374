"""Run by Airflow's Python: one trigger as a triggerer runs it, its event on stdout.

The trigger is made from what it serializes to, as after a triggerer's restart. Arguments:
seconds between looks, the folder to look from, and the command."""

from __future__ import annotations

import asyncio
import json
import sys

# Only there where this runs.
from airflow._shared.module_loading import import_string  # type: ignore[import-not-found]
from rangeland_airflow.triggers import LogReachedTrigger  # type: ignore[import-not-found]


async def main(poll_s: float, directory: str, arguments: list[str]) -> None:
    first = LogReachedTrigger(arguments, directory, poll_s)
    path, state = first.serialize()
    trigger = import_string(path)(**json.loads(json.dumps(state)))
    async for event in trigger.run():
        print(f"event {json.dumps(event.payload)}", flush=True)


asyncio.run(main(float(sys.argv[1]), sys.argv[2], sys.argv[3:]))
