"""Everything before a plan is entered: making it, finding plans that block it, refusing what the
table cannot take, and writing it to a file for review."""
