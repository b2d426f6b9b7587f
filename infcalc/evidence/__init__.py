"""What users measured: benchmark results, metrics and interval lines of engines, read from text that is handed in."""
