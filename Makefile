# Two commands: `make run` shows pools filling on the embedded simulated cloud,
# `make test` passes every test. Both set up everything that they need.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCHMARKS := $(filter-out benchmarks/measure.py benchmarks/recording.py benchmarks/big_fleet.py \
	benchmarks/pages.py benchmarks/time_to_active.py,$(wildcard benchmarks/*.py))

.DEFAULT_GOAL := help
.PHONY: help run test fast chaos lint lab-test docs bench bench-lab bench-light clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group test --group lint --group bench --group docs --editable '.[run,otel]'
	@touch $@

run: $(STAMP)  ## pools on the embedded simulated cloud, for a minute
	@$(BIN)/python docs/examples/demo.py

test: lint fast chaos lab-test  ## everything: style, types, fast tests, kill -9, the real OpenStack

fast: $(STAMP)  ## tests that need no server of their own
	$(BIN)/python -m pytest -q -m 'not lab' --ignore tests/chaos --ignore tests/machine -n 3 --dist worksteal

chaos: $(STAMP)  ## kill -9, a lying cloud, failing disks and clocks; counted from the cloud's side
	$(BIN)/python -m pytest -q -m 'not lab' tests/chaos tests/machine -n 3 --dist worksteal

lab-test: $(STAMP)  ## tests against a real OpenStack on this machine (installs and starts it; root)
	$(BIN)/python -m pytest -q -m lab

lint: $(STAMP)  ## ruff, mypy, import rules, generated pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=runners $(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

docs: $(STAMP)  ## the documentation site, into site/
	$(BIN)/mkdocs build --strict

bench: $(STAMP)  ## figures, as ratios to peers measured in the same run
	@missed=; for script in $(BENCHMARKS); do $(BIN)/python $$script || missed="$$missed $$script"; \
	done; test -z "$$missed" || { echo "a bar is missed:$$missed"; exit 1; }

bench-lab: $(STAMP)  ## time to 50 ACTIVE servers on the lab, beside a bare script
	$(BIN)/python benchmarks/time_to_active.py

bench-light: $(STAMP)  ## the same with little work: fails on a gross regression of a ratio
	for name in replay tick memory; do $(BIN)/python benchmarks/$$name.py --light || exit 1; done

clean:  ## remove what was built here
	rm -rf $(VENV) site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
