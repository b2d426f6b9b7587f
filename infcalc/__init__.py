"""infcalc: capacity planner and roofline analyzer for LLM inference. The library is :mod:`infcalc.api`."""

__version__ = "0.1.0"
