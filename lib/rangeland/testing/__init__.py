"""Real brokers on this machine: for the demo, for our tests, and for tests of users.

`KafkaCluster` and its kin start brokers from jars that are fetched once; `producing` puts
records into them, `consuming` reads them with somebody else's client. Nothing outside of
this package, the demo and tests imports it, and nothing here imports the reader.

On the command line: ``python -m rangeland.testing kafka --brokers 3``.
"""
