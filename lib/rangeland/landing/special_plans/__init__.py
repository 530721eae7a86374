"""Plans that do more than land new offsets: they redrive quarantine, replace rows or adopt a table.
Everything that only these plans need is here, from their draft to their commit."""
