"""A job's cluster: its settings, its survey, and whether its brokers answer."""
