"""Carries an entered plan through to its commit: reads it, checks the result, and commits it."""
