"""A plan to its end and into its table: what is read, proved, prepared and committed, and what of
it was lost, held, set aside or replaced."""
