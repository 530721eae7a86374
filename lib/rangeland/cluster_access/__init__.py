"""A job's cluster: its survey, and whether it can be used at all."""
