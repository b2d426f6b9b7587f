"""Speculative decoding: expected acceptance and what it is worth."""
