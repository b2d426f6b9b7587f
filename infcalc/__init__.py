"""infcalc: capacity planner and roofline analyzer for LLM inference."""

__version__ = "0.1.0"
