"""Results to tables, and tables to terminal, JSON, CSV, Markdown and plots."""
