"""Consumer groups at their backends: members, assignments and offsets. Landing never depends on
them."""
