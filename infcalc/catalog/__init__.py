"""Mappings (YAML, config.json, GGUF headers) to nouns, with lookup by name."""
