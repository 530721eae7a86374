"""A job's cluster: its settings, its survey, its registered schemas, the backend of its groups, and
whether its brokers answer."""
