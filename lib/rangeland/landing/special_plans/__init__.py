"""Plans that do more than land new offsets: quarantine landed again, rows replaced, a table
adopted. What only these need is here, from their draft to their commit."""
