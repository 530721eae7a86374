"""Typed payloads: turns keys and values from bytes into Arrow columns, for every record."""
