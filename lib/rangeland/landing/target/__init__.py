"""The table that a job lands in, with the ledger and the quarantine beside it: what they say of the
job, and what is written to them."""
