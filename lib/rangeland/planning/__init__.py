"""Plans as arithmetic: bounds, ranges, slices, limits, coverage, policy, proof. No clock, no
I/O."""
