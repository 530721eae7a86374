"""The table that a job lands in, with the ledger and the quarantine beside it: reading a job's
history from them, and writing to them."""
