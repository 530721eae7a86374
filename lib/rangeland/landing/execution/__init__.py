"""Takes a plan that is entered to its end: reads it, checks what was read, and commits it."""
