# VENV is where the tools live; .ci/run points it at a fresh folder each time.
VENV ?= .venv
PY := $(VENV)/bin/python

.PHONY: help test check wheel bench docs clean

help:
	@echo "make test   run all tests (installs what they need into $(VENV))"
	@echo "make check  ruff, mypy --strict, import contracts"
	@echo "make wheel  build the wheel and test it where the checkout cannot be imported"
	@echo "make bench  measure start-up and the core"
	@echo "make docs   write the output blocks and pages of README and docs anew, and the bands of estimates"

$(VENV)/.ready: pyproject.toml hatch_build.py
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet --editable '.[plot,gguf]' --group dev
	touch $@

# A worker per core: linear algebra keeps to one thread each.
test: $(VENV)/.ready
	OPENBLAS_NUM_THREADS=1 $(PY) -m pytest --numprocesses auto

check: $(VENV)/.ready
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

wheel: $(VENV)/.ready
	$(PY) scripts/check_wheel.py

# An installed wheel is byte-compiled, as users have it; a checkout may not be.
bench: $(VENV)/.ready
	python3 -m venv --clear $(VENV)/bench
	$(VENV)/bench/bin/python -m pip install --quiet .
	$(VENV)/bench/bin/python benchmarks/startup.py
	$(VENV)/bench/bin/python benchmarks/core.py
	$(VENV)/bench/bin/python benchmarks/estimates.py
	$(VENV)/bench/bin/python benchmarks/kvcache.py
	$(VENV)/bench/bin/python benchmarks/planning.py
	$(VENV)/bench/bin/python benchmarks/simulation.py
	$(VENV)/bench/bin/python benchmarks/peers.py
	$(VENV)/bench/bin/python benchmarks/workload.py

docs: $(VENV)/.ready
	$(PY) scripts/serving_bands.py
	$(PY) scripts/serving_peers.py
	$(PY) scripts/render_docs.py
	$(PY) scripts/accuracy.py
	$(PY) scripts/efficiency_page.py
	$(PY) scripts/serving_left_out.py
	$(PY) scripts/serving_page.py
	$(PY) scripts/speculation_page.py
	$(PY) scripts/simulation_page.py
	$(PY) scripts/calibration_page.py
	$(PY) scripts/diagnosis_page.py
	$(PY) scripts/skill_page.py
	$(PY) scripts/accuracy_tables.py
	$(PY) scripts/terminal_picture.py

clean:
	rm -rf $(VENV) dist build
