"""One view per command: which tables, findings and notes an answer is shown as."""
