# One word per habit; `make` alone lists them. Every target makes its own virtual environment first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SEEN_BY_SPARK := $(VENV)/.seen-by-spark
SPARK_CLASSES := $(VENV)/spark-classes.jsa
PYTEST := $(BIN)/python -m pytest
DEMO_MESSAGES ?= 100000
KERNELS := $(wildcard timestone/kernel/*.pyx timestone/kernel/*.h mqtt_front/kernel/*.pyx mqtt_front/kernel/*.h)
# Slow tests wait for disks, timers, leases and other processes for half of their time; for the quick ones, to collect
# them all is most of the work of a worker.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(os.cpu_count() + 1, 4))')
test cluster: WORKERS = $(shell $(PYTHON) -c 'import os; print(min(2 * os.cpu_count(), 4))')
SIDE_BY_SIDE = --numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder
FAST := not spark and not slow and not crash and not faults
PROSE := tests/house/test_plain_english.py tests/house/test_layout.py

# Compiling every module in every process is most of the time of a short command. `clean` removes the files.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo cluster-demo test cluster check lint style imports types prose format unit crash fuzz sanitize faults soak soak-cluster bench bench-micro scale docs alerts vendor web notebooks man wheel sdist deb clean distclean
MAKEFLAGS += --no-print-directory

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## 200 devices -> MQTT -> log -> pipeline -> Parquet, and every count compared (DEMO_KEEP=1 serves it)
	@$(BIN)/python -m examples.demo --messages $(DEMO_MESSAGES)

cluster-demo: $(INSTALLED) ## etcd and three nodes here, devices that append, a leader killed, counts compared
	@$(BIN)/python -m examples.cluster_demo

test: $(INSTALLED) $(if $(TESTS),,$(SPARK_CLASSES)) ## all tests but those of `make cluster` (TESTS="tests/cli -k serve" for any part of all)
	@$(PYTEST) $(if $(TESTS),$(TESTS),$(SIDE_BY_SIDE) --reruns 1 -m "not cluster")

cluster: $(INSTALLED) ## the tests that start nodes of a cluster, with a real etcd
	@$(PYTEST) $(SIDE_BY_SIDE) --reruns 1 -m cluster

check: lint ## what to run before each commit: lint, then the fast tests
	@$(PYTEST) -q $(SIDE_BY_SIDE) -m "$(FAST)" $(PROSE:%=--deselect %)

lint: $(INSTALLED) ## format, lint, types, who imports whom, prose; changes nothing
	@$(MAKE) --jobs --output-sync style imports types prose

style: $(INSTALLED)
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(BIN)/ruff check --quiet .

imports: $(INSTALLED)
	@report=$$($(BIN)/lint-imports --no-logo) || { echo "$$report"; exit 1; }

prose: $(INSTALLED)
	@report=$$($(PYTEST) -q $(PROSE)) || { echo "$$report"; exit 1; }

types: $(INSTALLED) ## mypy --strict over all packages and tests
	@mkdir -p build/names
	@ln -sfn ../../cli build/names/timestone_cli
	@ln -sfn ../../bench build/names/timestone_bench
	@ln -sfn ../../pipeline build/names/timestone_pipeline
	@ln -sfn ../../tiering build/names/timestone_tiering
	@ln -sfn ../../access build/names/timestone_access
	@ln -sfn ../../console build/names/timestone_console
	@ln -sfn ../../cluster build/names/timestone_cluster
	@$(BIN)/mypy

format: $(INSTALLED) ## rewrite the sources in the house format
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

unit: $(INSTALLED) ## the tests without Spark, benchmarks, kills and broken disks
	@$(PYTEST) -q $(SIDE_BY_SIDE) -m "$(FAST)"

crash: $(INSTALLED) ## just the tests that kill processes and cut power (TIMESTONE_CRASH_ROUNDS=1000 for longer)
	@$(PYTEST) -m crash $(TESTS)

faults: $(INSTALLED) ## just the tests in which the disk fails, fills up or flips bits
	@$(PYTEST) -m faults $(TESTS)

# Hours. Seeds and counts are printed; the first run is the one people ask for.
LONG := TIMESTONE_SEED=$(or $(TIMESTONE_SEED),random) TIMESTONE_CRASH_ROUNDS=1000 TIMESTONE_POWER_LOSS_IMAGES=20 \
  TIMESTONE_POWER_LOSS_NESTED_EVERY=29 TIMESTONE_SEQUENCE_LENGTH=4 TIMESTONE_CALLS_STEP=1 TIMESTONE_BITS=8 \
  TIMESTONE_CATALOGUE_ROUNDS=1000 \
  TIMESTONE_MODEL_EXAMPLES=2000 TIMESTONE_SOAK_SECONDS=3600 TIMESTONE_SCALE_TOPICS=100000 TIMESTONE_SCALE_LOGS=5000 \
  TIMESTONE_DELIVERY_KILLS=200 TIMESTONE_PIPELINE_SECONDS=600 TIMESTONE_PIPELINE_SOAK_S=3600
soak: $(INSTALLED) ## 1,000 kill -9 rounds, all crash and fault tests with long settings, the pipeline for an hour: hours
	@$(LONG) $(PYTEST) -q -s --timeout=0 tests/crash/test_kill.py -k random_moments
	@$(LONG) $(PYTEST) -s --timeout=0 -m "crash or faults" $(TESTS)
	@$(LONG) $(PYTEST) -s --timeout=0 tests/pipeline/test_soak.py

soak-cluster: $(INSTALLED) ## killed nodes, partitions, the mix of faults, mutants, simulations and states of a cluster (PARTS="nodes mix" TIMESTONE_CLUSTER_SECONDS=900): hours
	@$(BIN)/python -m tests.cluster.soak $(PARTS)

fuzz: $(INSTALLED) ## random and broken MQTT and HTTP (TIMESTONE_FUZZ_INPUTS=1000, TIMESTONE_API_EXAMPLES=20 for fewer)
	@TIMESTONE_FUZZ_INPUTS=$${TIMESTONE_FUZZ_INPUTS:-10000000} TIMESTONE_SEED=$${TIMESTONE_SEED:-random} \
	  $(PYTEST) --timeout 0 tests/mqtt_front/test_fuzz.py
	@TIMESTONE_API_EXAMPLES=$${TIMESTONE_API_EXAMPLES:-2000} TIMESTONE_SEED=$${TIMESTONE_SEED:-random} \
	  $(PYTEST) --timeout 0 tests/console/api/test_contract.py

sanitize: $(INSTALLED) ## the compiled kernels under an address sanitizer, with their tests
	@.ci/sanitize

bench: $(INSTALLED) ## how fast the engine is on this machine's disk
	@$(BIN)/timestone bench segment-throughput

# MICRO="--benchmark-json=bench/micro/stored.json" stores a run, MICRO="-k compression" chooses rows.
STORED := $(wildcard bench/micro/stored.json)
bench-micro: $(INSTALLED) ## the engine call by call with pytest-benchmark, beside the stored run (MICRO="-k log")
	@$(PYTEST) -q bench/micro $(STORED:%=--benchmark-compare=%) --benchmark-columns=min,median,iqr,rounds \
	  --benchmark-max-time=0.3 --benchmark-warmup=on --benchmark-warmup-iterations=100 $(MICRO)

scale: $(INSTALLED) ## write the tables of docs/scale.md again, after a change of bench/sizing/constants.py
	@$(BIN)/python -m timestone_bench.sizing.page docs/scale.md

docs: $(VENV)/.docs ## build the documentation as a site in build/site; links are checked
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet && echo "build/site/index.html"

$(VENV)/.docs: pyproject.toml | $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

man: $(INSTALLED) ## build man pages and shell completion in build/share; man checks the pages
	@rm -rf build/share && $(BIN)/python -m timestone_cli.share_files build/share
	@command -v man >/dev/null || { echo "man is not installed: the pages are not checked"; exit 0; }; \
	  for page in build/share/man/man1/*; do \
	    warnings=$$(man --warnings -l "$$page" 2>&1 >/dev/null); \
	    [ -z "$$warnings" ] || { echo "$$page: $$warnings"; exit 1; }; \
	  done; echo "man -l build/share/man/man1/timestone.1"

alerts: $(INSTALLED) ## write monitoring/alerts.yaml from the table of conditions
	@$(BIN)/python -m timestone_console.reading.conditions > monitoring/alerts.yaml

vendor: ## fetch the libraries of the console's pages again, by console/web/package-lock.json (needs npm)
	@$(PYTHON) packaging/vendor_console.py

build/node/node_modules/.bin/tsc: console/web/package.json
	@npm install --silent --no-audit --no-fund --prefix build/node typescript@5.9.3

web: build/node/node_modules/.bin/tsc ## check the types of the console's pages, and its vendored files (needs npm)
	@build/node/node_modules/.bin/tsc --project console/web && $(PYTHON) packaging/vendor_console.py --check

notebooks: $(INSTALLED) ## run docs/notebooks and store them with their outputs
	@$(BIN)/python docs/notebooks/execute.py

wheel: $(INSTALLED) ## build dist/timestone-*.whl
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

sdist: $(INSTALLED) ## build dist/timestone-*.tar.gz and a wheel from it, and check both with twine
	@rm -rf dist/timestone-* && $(BIN)/python -m build --outdir dist . >/dev/null
	@$(BIN)/python -m twine check --strict dist/timestone-*

deb: ## build dist/timestone_*.deb for the Python of this Debian, and try it in namespaces (needs root)
	@rm -f dist/timestone_*.deb && packaging/debian/build
	@packaging/debian/check dist/timestone_*.deb || [ $$? = 77 ]

install: $(INSTALLED) ## make or refresh .venv

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Timestone needs Python 3.11 or newer. Name one: make PYTHON=/path/to/python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# Spark looks for data sources among the modules that lie in folders. Those of an editable install do not.
$(SEEN_BY_SPARK): | $(BIN)/python
	@folder=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	  echo 'from pyspark_timestone import DefaultSource' > "$$folder/pyspark_timestone_editable.py"
	@touch $@

# The first install downloads Spark, half a gigabyte: pip's own progress is left visible. It compiles no editable
# install, and PYTHONDONTWRITEBYTECODE may keep `timestone` from storing what it compiles: half the time of a start.
$(INSTALLED): pyproject.toml setup.py $(KERNELS) | $(SEEN_BY_SPARK)
	@echo "Installing Timestone and what it needs into $(VENV) (the first time this takes some minutes)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check --timeout 120 --editable '.[dev]'
	@$(BIN)/python -m compileall -q access bench cli cluster console flight_front mqtt_front pipeline pyspark_timestone tiering timestone
	@touch $@

# Without the archive of its classes, each start of Spark in a test takes twice the processor time.
$(SPARK_CLASSES): pyproject.toml tests/support/quick_java.py | $(INSTALLED)
	@$(BIN)/python -m tests.support.quick_java || echo "no archive of Spark's classes: tests take longer"

clean: ## remove what builds, tests and demos left behind
	rm -rf build dist ./*.egg-info .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## the same, and the virtual environment
	rm -rf $(VENV)
