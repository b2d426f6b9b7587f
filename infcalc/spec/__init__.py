"""Nouns a user can describe: models, hardware, precision, parallelism, deployment.

All frozen, no arithmetic beyond properties.
"""
