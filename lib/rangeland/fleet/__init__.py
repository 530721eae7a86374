"""Lands many tables in one session: several job files, and jobs with a table for each topic."""
