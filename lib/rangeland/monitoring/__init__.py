"""Reports commands that land to other systems."""
