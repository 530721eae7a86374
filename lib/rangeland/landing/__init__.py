"""Takes a plan from its draft to its commit, and verifies what has landed by reading the table.

``target`` is the table that a job lands in. ``drafts`` makes plans and ``execution`` carries them
out; neither uses the other, and both use the rest. ``landing_steps`` determines the order of their
steps.
"""
