"""A run in its job's consumer group: a driver's lease, a plan shared by the group's drivers, the
checkpoint mirrored to it. Landing never depends on it."""
