"""Real brokers on this machine, for the demo, our own tests and the tests of users.

`KafkaCluster` and similar classes start brokers from jars that are downloaded once; `producing`
writes records, `consuming` reads them with another client. Only the demo and tests import this
package, and it does not import the code under test.

On the command line: ``python -m rangeland.testing kafka --brokers 3``.
"""
