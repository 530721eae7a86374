"""A job's cluster: its settings, its survey, its registered schemas, and whether its brokers
answer."""
