"""Typed payloads: the bytes of keys and values → Arrow columns, every record accounted for."""
