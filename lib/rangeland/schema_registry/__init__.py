"""The client of a schema registry: Confluent's API, in the driver, and for ids that it has not seen
in executors."""
