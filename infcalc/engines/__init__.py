"""Serving engines: their defaults and accounting rules by version, as data with sources."""
