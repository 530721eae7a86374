"""``python -m rangeland.testing``: a broker to try things on, until Ctrl-C.

Thin: reads the command line, starts what `kafka.py` has, prints where it is. The servers
go to stdout, one line, for scripts; what is for people goes to stderr.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

from rangeland.errors import RangelandError, Unreachable
from rangeland.jvm.jars import JAR_SETS, fetch_jars
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.producing import CODECS, fill

VERSIONS = (*KafkaCluster.versions, *KafkaZooKeeperCluster.versions)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    # SIGINT too: a shell that starts this in its background has it ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        if chosen.command == "fetch":
            _fetch(chosen.sets)
        else:
            _serve(chosen)
    except KeyboardInterrupt:
        return 0
    except RangelandError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rangeland.testing", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    kafka = commands.add_parser("kafka", help="start a Kafka cluster and keep it until Ctrl-C")
    kafka.add_argument("--brokers", type=int, default=1, metavar="N")
    kafka.add_argument("--version", choices=VERSIONS, default=VERSIONS[0])
    kafka.add_argument("--heap-mb", type=int, default=256, metavar="MIB")
    kafka.add_argument("--topic", default="orders", help="the topic that --records go to")
    kafka.add_argument("--records", type=int, default=0, metavar="N", help="fill a topic first")
    kafka.add_argument("--partitions", type=int, default=4, metavar="N")
    kafka.add_argument("--codec", choices=CODECS, default="lz4")
    fetch = commands.add_parser("fetch", help="fetch jars into the cache, for use without network")
    fetch.add_argument("sets", nargs="*", metavar="SET", help=", ".join(JAR_SETS))
    return parser


def _fetch(sets: Sequence[str]) -> None:
    for name in sets or JAR_SETS:
        print(fetch_jars(name))


def _serve(chosen: argparse.Namespace) -> None:
    kind = KafkaCluster if chosen.version in KafkaCluster.versions else KafkaZooKeeperCluster
    _say(f"Starting Kafka {chosen.version} (the first time fetches it, about a minute) ...")
    with kind(chosen.version, brokers=chosen.brokers, heap_mb=chosen.heap_mb) as cluster:
        if chosen.records:
            _fill(cluster.bootstrap, chosen)
        print(",".join(cluster.bootstrap), flush=True)
        _say("These are the bootstrap servers. Ctrl-C stops the brokers and removes their data.")
        while True:
            time.sleep(1)
            _look_after(cluster)


def _fill(bootstrap: list[str], chosen: argparse.Namespace) -> None:
    size = fill(
        bootstrap, chosen.topic, chosen.records, codec=chosen.codec, partitions=chosen.partitions
    )
    _say(f"Topic {chosen.topic}: {chosen.records:,} records, {size / 1e6:,.0f} MB in all.")


def _look_after(cluster: KafkaCluster | KafkaZooKeeperCluster) -> None:
    if not cluster.running:
        raise Unreachable("No broker is left", why="all of them have ended", do="Start again")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
