"""The same rules as :mod:`infcalc.simulation.oracle`, in aggregate: the cost of a step does not grow with the batch.

All who decode take one token per step. Hence one counter of steps stands for everybody's progress, a heap of last steps
for everybody's end, one sum for all contexts, and a histogram of contexts modulo the block size says how many blocks
the next steps take. Runs of steps in which nobody comes or leaves have a closed form, in whole picoseconds.

The real schedulers and managers are the oracle; every record of a run here is the same, bit for bit.
"""
