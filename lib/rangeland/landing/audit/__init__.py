"""Compares a table's rows with its ledger. Nothing is written."""
