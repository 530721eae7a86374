"""Everything before a plan is entered: what it is made from, what is in its way, what the table
refuses, and its file for review."""
