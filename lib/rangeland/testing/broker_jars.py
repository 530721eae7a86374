"""The sets of jars for the brokers that can be started here, by name."""

from __future__ import annotations

from rangeland.jvm.jar_sets import JarSet, by_name

LOG4J = "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3"

# To support another server, add an entry. Comments explain what a server needs but does not list as
# a dependency.
BROKER_JARS = by_name(
    # Without an SLF4J binding these brokers log nothing. 4.4.0 depends on an artifact that is in no
    # repository; only command-line tools need it.
    JarSet(
        "kafka-4.4.0",
        ("org.apache.kafka:kafka_2.13:4.4.0", LOG4J),
        excludes=("org.apache.kafka:kafka-tools-api",),
    ),
    JarSet("kafka-4.1.0", ("org.apache.kafka:kafka_2.13:4.1.0", LOG4J)),
    JarSet(
        "kafka-3.9.1",
        ("org.apache.kafka:kafka_2.13:3.9.1", "org.slf4j:slf4j-reload4j:1.7.36"),
    ),
    # ZooKeeper 3.4 comes with these. JAXB was removed from the JDK after version 8; the cluster id
    # needs it.
    JarSet(
        "kafka-0.11.0.3",
        ("org.apache.kafka:kafka_2.11:0.11.0.3", "javax.xml.bind:jaxb-api:2.3.1"),
    ),
    JarSet(
        "kafka-0.10.2.2",
        ("org.apache.kafka:kafka_2.11:0.10.2.2", "javax.xml.bind:jaxb-api:2.3.1"),
    ),
    JarSet("kafka-0.9.0.1", ("org.apache.kafka:kafka_2.11:0.9.0.1",)),
    JarSet("kafka-0.8.2.2", ("org.apache.kafka:kafka_2.11:0.8.2.2",)),
    # Its ZooKeeper client and a log binding come with it. Its console tools need jopt-simple, which
    # is missing from its list of dependencies.
    JarSet("jafka-3.0.6", ("io.jafka:jafka:3.0.6", "net.sf.jopt-simple:jopt-simple:4.3")),
    # Name server, broker and client; the broker brings its own SLF4J (shaded).
    JarSet(
        "rocketmq-5.5.0",
        (
            "org.apache.rocketmq:rocketmq-namesrv:5.5.0",
            "org.apache.rocketmq:rocketmq-broker:5.5.0",
            "org.apache.rocketmq:rocketmq-client:5.5.0",
        ),
    ),
)
