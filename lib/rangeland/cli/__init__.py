"""What each command takes and prints, by what it does. ``cli`` puts them together."""
