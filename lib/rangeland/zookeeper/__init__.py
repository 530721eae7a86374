"""ZooKeeper: its client, its nodes as values, and the registry of brokers.

Only the driver uses it: nothing that executors import may import it. ``zookeeper_client`` is
the only module that imports kazoo, ``broker_registry`` reads through it, and ``connect_string``
and ``znodes`` are pure. Groups in ZooKeeper are in ``groups.zookeeper``.
"""
