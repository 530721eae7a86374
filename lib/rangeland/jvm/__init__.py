"""Finds a Java and fetches jars, for Spark sessions and for the brokers of the testing package."""
