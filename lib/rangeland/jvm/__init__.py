"""Finds a Java installation and fetches jars, for Spark sessions and for the brokers of the testing
package."""
