"""A run's part in its job's consumer group: a driver's lease, a plan shared by the group's drivers,
and the mirrored checkpoint. Landing never depends on the group."""
