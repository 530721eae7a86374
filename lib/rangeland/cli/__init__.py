"""The commands; ``command_line`` puts them together."""
