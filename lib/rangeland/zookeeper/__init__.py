"""ZooKeeper: its client, its nodes as values, and the registry of brokers.

Only the driver uses it: nothing that executors import may import it. ``zookeeper_client`` holds a
kazoo session, ``broker_registry`` reads through it, ``access_diagnosis`` finds out why access
fails, and ``connect_string``, ``znodes`` and ``zookeeper_access`` contain values. Groups in
ZooKeeper are in ``groups.zookeeper``.
"""
