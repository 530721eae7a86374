"""The arithmetic of plans: bounds, ranges, slices, limits, coverage, policy, proof. No clock, no
I/O."""
