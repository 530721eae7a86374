"""The commands; ``command_line`` assembles them."""
