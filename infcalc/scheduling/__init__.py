"""Who computes what in each step: sequences, the plan of one step, and the policies of serving engines.

A scheduler is given sequences and a KV manager. ``plan()`` decides one step; whoever carries it out hands the tokens
that it produced to ``update()``. Nothing here knows time or cost: a simulator prices the same plans that the numpy
engine of :mod:`infcalc.reference` computes.
"""
