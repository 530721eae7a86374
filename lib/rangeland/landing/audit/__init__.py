"""Compares the rows that a table has with what its ledger says of them. Nothing is written."""
