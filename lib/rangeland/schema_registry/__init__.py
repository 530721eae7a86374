"""Asks a schema registry through Confluent's API: in the driver, and in executors for ids that the
driver has not seen."""
