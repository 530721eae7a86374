"""What other systems are told about landings."""
