"""``python -m rangeland.testing``: brokers to experiment with, until Ctrl-C.

Parses the command line, starts a cluster, and prints its address and how to use it. The servers go
to stdout on one line, for scripts; text for people goes to stderr.
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

from rangeland.errors import RangelandError, Unreachable, UsageError
from rangeland.jvm.jar_sets import LIBRARY_JARS, JarSet
from rangeland.jvm.jars import fetch_jars
from rangeland.testing import jafka_clients, rocketmq_clients
from rangeland.testing.broker_jars import BROKER_JARS
from rangeland.testing.clusters import LocalCluster
from rangeland.testing.jafka import JafkaCluster
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.producer import CODECS, Record, fill, produce
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.wording import count_noun

JARS = LIBRARY_JARS | BROKER_JARS
VERSIONS = (*KafkaCluster.versions, *KafkaZooKeeperCluster.versions)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    # SIGINT too, because a shell that starts this in the background makes it ignore that signal.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        COMMANDS[options.command](options)
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
    fetch.add_argument("sets", nargs="*", metavar="SET", help=", ".join(JARS))
    return parser


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    versions: Sequence[str],
    heap_mb: int,
    records_of: str,
) -> argparse.ArgumentParser:
    """Adds a command that starts a cluster, with the options of all clusters."""
    parser = commands.add_parser(name, help=f"start a {name} cluster and keep it until Ctrl-C")
    parser.add_argument("--brokers", type=int, default=1, metavar="N")
    parser.add_argument("--version", choices=versions, default=versions[0])
    parser.add_argument("--heap-mb", type=int, default=heap_mb, metavar="MIB")
    parser.add_argument("--topic", default=records_of, help="the topic that --records go to")
    parser.add_argument("--records", type=int, default=0, metavar="N", help="fill a topic first")
    return parser


def _produce(options: argparse.Namespace) -> None:
    try:
        values = options.file.read_bytes().splitlines()
    except OSError as error:
        what = f"{options.file} cannot be read"
        raise UsageError(what, why=error.strerror or str(error), do="name a file") from error
    produce(options.server, options.topic, [Record(value) for value in values])
    _say(f"Wrote {count_noun(len(values), 'record')} to the topic {options.topic}.")


def _fetch(options: argparse.Namespace) -> None:
    for jars in [_jar_set(name) for name in options.sets or JARS]:
        print(fetch_jars(jars))


def _jar_set(name: str) -> JarSet:
    if name not in JARS:
        names = ", ".join(sorted(JARS))
        raise UsageError(f"There is no set of jars named {name}", do=f"use one of: {names}")
    return JARS[name]


# --- clusters ---------------------------------------------------------------------------


def _kafka(options: argparse.Namespace) -> None:
    kind = KafkaCluster if options.version in KafkaCluster.versions else KafkaZooKeeperCluster
    _announce(options)
    with kind(options.version, brokers=options.brokers, heap_mb=options.heap_mb) as cluster:
        if options.records:
            if is_old := isinstance(cluster, KafkaZooKeeperCluster):  # some have no request for it
                cluster.create_topic(options.topic, options.partitions)
            size = fill(
                cluster.bootstrap,
                options.topic,
                options.records,
                codec=options.codec,
                partitions=options.partitions,
                version=options.version,
                is_made=is_old,
            )
            records = count_noun(options.records, "record")
            _say(f"Topic {options.topic}: {records}, {size / 1e6:,.1f} MB in all.")
        print(",".join(cluster.bootstrap), flush=True)
        _say("These are the bootstrap servers. Ctrl-C stops the brokers and removes their data.")
        _keep(cluster)


def _jafka(options: argparse.Namespace) -> None:
    _announce(options)
    with JafkaCluster(
        options.version,
        brokers=options.brokers,
        partitions=options.partitions,
        heap_mb=options.heap_mb,
    ) as cluster:
        logs = [(cluster.address(b), n) for b in cluster.ids for n in range(options.partitions)]
        _fill_and_keep(options, cluster, logs, jafka_clients.produce)


def _rocketmq(options: argparse.Namespace) -> None:
    _announce(options)
    with RocketmqCluster(
        options.version,
        brokers=options.brokers,
        slaves=options.slaves,
        name_servers=options.name_servers,
        heap_mb=options.heap_mb,
    ) as cluster:
        cluster.create_topic(options.topic, options.queues)  # no client can create one here
        logs = [(cluster.address(b), n) for b in cluster.masters for n in range(options.queues)]
        _fill_and_keep(options, cluster, logs, rocketmq_clients.produce)


COMMANDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "kafka": _kafka,
    "jafka": _jafka,
    "rocketmq": _rocketmq,
    "produce": _produce,
    "fetch": _fetch,
}


def _fill_and_keep(
    options: argparse.Namespace,
    cluster: JafkaCluster | RocketmqCluster,
    logs: Sequence[tuple[str, int]],
    produce_to: Callable[[str, str, Sequence[bytes], int], object],
) -> None:
    """Distributes the records over the logs, each of which is given by an address and a number.
    Prints what to do next."""
    for index, (address, number) in enumerate(logs):
        values = [b"record %d" % record for record in range(index, options.records, len(logs))]
        produce_to(address, options.topic, values, number)
    print(",".join(cluster.servers), flush=True)
    _say_how_to_go_on(options, cluster.servers)
    _keep(cluster)


def _keep(cluster: LocalCluster[Any]) -> None:
    """Waits until Ctrl-C, or until no broker is left."""
    while True:
        time.sleep(1)
        if not set(cluster.running) & set(cluster.brokers):
            raise Unreachable("No broker is left", why="all of them have ended", do="start again")


# --- words ------------------------------------------------------------------------------


def _announce(options: argparse.Namespace) -> None:
    name = f"{options.command} {options.version}"
    _say(f"Starting {name} (the first time fetches it, about a minute) ...")


def _say_how_to_go_on(options: argparse.Namespace, servers: Sequence[str]) -> None:
    """Prints a complete job file and the next commands."""
    topic, dialect = options.topic, options.command
    quoted_servers = ", ".join(f'"{server}"' for server in servers)
    if options.records:
        _say(f"Topic {topic}: {options.records:,} records.")
    _say(
        f"These are the servers of a job file. In another terminal, write {topic}.yaml:\n\n"
        f"job: {topic}\n"
        "source:\n"
        f"  dialect: {dialect}\n"
        f"  servers: [{quoted_servers}]\n"
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
