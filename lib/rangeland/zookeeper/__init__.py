"""What is spoken with ZooKeeper: a registry of brokers, and a home for consumer groups.

The only room that knows kazoo, and of the driver only: nothing that executors import may
import it. ``client`` is the edge; ``registry`` and ``group`` act through it; ``ensemble``,
``nodes``, ``layout`` and ``assignment`` are pure.
"""
