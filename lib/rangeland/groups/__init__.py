"""Consumer groups as their backends keep them: members, assignments and offsets. Landing never
depends on them."""
