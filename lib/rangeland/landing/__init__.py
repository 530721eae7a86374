"""Takes a plan to its end: read, proved, prepared and committed; with what was lost, held,
quarantined or replaced on the way, and the checks that the table still has what was landed."""
