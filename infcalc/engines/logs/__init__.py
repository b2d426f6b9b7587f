"""Start-up logs of serving engines, read into one noun: settings and printed figures, each with its line."""
