"""Tensors and cache layouts to bytes, per GPU."""
