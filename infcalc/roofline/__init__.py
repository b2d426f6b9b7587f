"""Ops to seconds: the price of one op, the crossover, a whole step."""
