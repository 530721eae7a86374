"""What other systems are told about a command that lands."""
