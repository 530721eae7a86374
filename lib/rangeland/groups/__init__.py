"""A job's consumer group: where it lives, a driver's place in it, a plan shared by its drivers, its
offsets. Landing never depends on it."""
