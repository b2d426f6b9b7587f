"""Tests of the room planning."""
