"""A small transformer in numpy that executes step plans with real tokens: proof that caches and schedulers are right.

It is written to be read and checked, not to be fast. Two kinds of arithmetic are offered. Row by row
(:mod:`~infcalc.reference.projection`, :func:`~infcalc.reference.attention.row_by_row`): every token is computed by the
same calls on the same shapes whatever else is in the batch, so that results agree bit for bit however a scheduler cuts
the work. Batched: one matrix product for all rows, as an engine would; BLAS then sums in an order that depends on the
shape of the batch, and results agree to rounding only.
"""
