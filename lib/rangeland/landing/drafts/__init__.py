"""Everything before a plan is entered: making it, finding other plans in its way, refusing what the
table cannot take, and writing it to a file for review."""
