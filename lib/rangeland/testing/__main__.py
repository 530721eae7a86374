"""``python -m rangeland.testing``: brokers to experiment with, until Ctrl-C.

Parses the command line, starts a cluster, and prints its address and what to do with it. The
servers go to stdout on one line, for scripts; text for people goes to stderr.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from rangeland.errors import RangelandError, Unreachable
from rangeland.jvm.jar_sets import JAR_SETS
from rangeland.jvm.jars import fetch_jars
from rangeland.testing import jafka_clients, rocketmq_clients
from rangeland.testing.clusters import LocalCluster
from rangeland.testing.jafka import JafkaCluster
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.producer import CODECS, Record, fill, produce
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.wording import count_noun

VERSIONS = (*KafkaCluster.versions, *KafkaZooKeeperCluster.versions)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    # SIGINT too: a shell that starts this in its background has it ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        COMMANDS[chosen.command](chosen)
    except KeyboardInterrupt:
        return 0
    except RangelandError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rangeland.testing", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    kafka = _add(commands, "kafka", VERSIONS, heap_mb=256, records_of="orders")
    kafka.add_argument("--partitions", type=int, default=4, metavar="N")
    kafka.add_argument("--codec", choices=CODECS, default="lz4")
    jafka = _add(commands, "jafka", JafkaCluster.versions, heap_mb=96, records_of="visits")
    jafka.add_argument("--partitions", type=int, default=2, metavar="N", help="of each broker")
    rocketmq = _add(
        commands, "rocketmq", RocketmqCluster.versions, heap_mb=192, records_of="payments"
    )
    rocketmq.add_argument("--queues", type=int, default=4, metavar="N", help="of each broker")
    rocketmq.add_argument("--name-servers", type=int, default=1, metavar="N")
    rocketmq.add_argument("--slaves", action="store_true", help="each broker gets a slave")
    lines = commands.add_parser("produce", help="write the lines of a file to a Kafka topic")
    lines.add_argument("server", metavar="HOST:PORT")
    lines.add_argument("topic")
    lines.add_argument("file", type=Path, help="each line becomes the value of a record")
    fetch = commands.add_parser("fetch", help="fetch jars into the cache, for use without network")
    fetch.add_argument("sets", nargs="*", metavar="SET", help=", ".join(JAR_SETS))
    return parser


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    versions: Sequence[str],
    heap_mb: int,
    records_of: str,
) -> argparse.ArgumentParser:
    """What all clusters understand."""
    made = commands.add_parser(name, help=f"start a {name} cluster and keep it until Ctrl-C")
    made.add_argument("--brokers", type=int, default=1, metavar="N")
    made.add_argument("--version", choices=versions, default=versions[0])
    made.add_argument("--heap-mb", type=int, default=heap_mb, metavar="MIB")
    made.add_argument("--topic", default=records_of, help="the topic that --records go to")
    made.add_argument("--records", type=int, default=0, metavar="N", help="fill a topic first")
    return made


def _produce(chosen: argparse.Namespace) -> None:
    values = chosen.file.read_bytes().splitlines()
    produce(chosen.server, chosen.topic, [Record(value) for value in values])
    _say(f"Wrote {count_noun(len(values), 'record')} to the topic {chosen.topic}.")


def _fetch(chosen: argparse.Namespace) -> None:
    for name in chosen.sets or JAR_SETS:
        print(fetch_jars(name))


# --- clusters ---------------------------------------------------------------------------


def _kafka(chosen: argparse.Namespace) -> None:
    kind = KafkaCluster if chosen.version in KafkaCluster.versions else KafkaZooKeeperCluster
    _announce(chosen)
    with kind(chosen.version, brokers=chosen.brokers, heap_mb=chosen.heap_mb) as cluster:
        if chosen.records:
            if is_old := isinstance(cluster, KafkaZooKeeperCluster):  # some have no request for it
                cluster.create_topic(chosen.topic, chosen.partitions)
            size = fill(
                cluster.bootstrap,
                chosen.topic,
                chosen.records,
                codec=chosen.codec,
                partitions=chosen.partitions,
                version=chosen.version,
                is_made=is_old,
            )
            megabytes = f"{size / 1e6:,.1f} MB"
            _say(
                f"Topic {chosen.topic}: {count_noun(chosen.records, 'record')}, {megabytes} in all."
            )
        print(",".join(cluster.bootstrap), flush=True)
        _say("These are the bootstrap servers. Ctrl-C stops the brokers and removes their data.")
        _keep(cluster)


def _jafka(chosen: argparse.Namespace) -> None:
    _announce(chosen)
    with JafkaCluster(
        chosen.version,
        brokers=chosen.brokers,
        partitions=chosen.partitions,
        heap_mb=chosen.heap_mb,
    ) as cluster:
        logs = [(cluster.address(b), n) for b in cluster.ids for n in range(chosen.partitions)]
        _fill_and_keep(chosen, cluster, logs, jafka_clients.produce)


def _rocketmq(chosen: argparse.Namespace) -> None:
    _announce(chosen)
    with RocketmqCluster(
        chosen.version,
        brokers=chosen.brokers,
        slaves=chosen.slaves,
        name_servers=chosen.name_servers,
        heap_mb=chosen.heap_mb,
    ) as cluster:
        cluster.create_topic(chosen.topic, chosen.queues)  # no client can make one here
        logs = [(cluster.address(b), n) for b in cluster.masters for n in range(chosen.queues)]
        _fill_and_keep(chosen, cluster, logs, rocketmq_clients.produce)


COMMANDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "kafka": _kafka,
    "jafka": _jafka,
    "rocketmq": _rocketmq,
    "produce": _produce,
    "fetch": _fetch,
}


def _fill_and_keep(
    chosen: argparse.Namespace,
    cluster: JafkaCluster | RocketmqCluster,
    logs: Sequence[tuple[str, int]],
    produce_to: Callable[[str, str, Sequence[bytes], int], object],
) -> None:
    """Distributes the records over the logs, each an address and a number. Says what to do next."""
    for at, (address, number) in enumerate(logs):
        values = [b"record %d" % record for record in range(at, chosen.records, len(logs))]
        produce_to(address, chosen.topic, values, number)
    print(",".join(cluster.servers), flush=True)
    _say_how_to_go_on(chosen, cluster.servers)
    _keep(cluster)


def _keep(cluster: LocalCluster[Any]) -> None:
    """Until Ctrl-C, or until no broker is left."""
    while True:
        time.sleep(1)
        if not cluster.running:
            raise Unreachable("No broker is left", why="all of them have ended", do="start again")


# --- words ------------------------------------------------------------------------------


def _announce(chosen: argparse.Namespace) -> None:
    name = f"{chosen.command} {chosen.version}"
    _say(f"Starting {name} (the first time fetches it, about a minute) ...")


def _say_how_to_go_on(chosen: argparse.Namespace, servers: Sequence[str]) -> None:
    """A job file that works as it is, and the next commands."""
    topic, dialect = chosen.topic, chosen.command
    listed = ", ".join(f'"{server}"' for server in servers)
    if chosen.records:
        _say(f"Topic {topic}: {chosen.records:,} records.")
    _say(
        f"These are the servers of a job file. In another terminal, write {topic}.yaml:\n\n"
        f"job: {topic}\n"
        "source:\n"
        f"  dialect: {dialect}\n"
        f"  servers: [{listed}]\n"
        f"  topics: [{topic}]\n"
        f"sink: {{table: lake/{topic}}}\n\n"
        f"and then: rangeland run {topic}.yaml\n"
        "Ctrl-C stops the brokers and removes their data."
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
