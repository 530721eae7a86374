"""What needs a JVM needs two things first: a Java, and jars. Both are found or fetched here,
for Spark sessions and for the brokers of the testing package alike."""
