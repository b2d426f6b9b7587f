"""What happens on a server over time: real schedulers and KV managers on a clock of whole picoseconds.

:mod:`infcalc.simulation.oracle` computes every step, by the components that :mod:`infcalc.reference` runs with real
numbers. It is plain rather than fast: whatever skips steps must agree with it to the picosecond.
"""
