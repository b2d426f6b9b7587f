"""What requests look like: lengths, and what a running one holds in the cache."""
