"""Real brokers on this machine, for the demo, for our own tests and for those of users.

`KafkaCluster` and similar classes start brokers from jars that are downloaded once; `producer`
writes records, `consumer` reads them with another client. Only the demo and tests import this
package, and it does not import the code under test.

On the command line: ``python -m rangeland.testing kafka --brokers 3``.
"""
