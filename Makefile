# One word per habit; `make` alone lists them. Every target makes its own virtual environment first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SEEN_BY_SPARK := $(VENV)/.seen-by-spark
PYTEST := $(BIN)/python -m pytest
DEMO_MESSAGES ?= 100000
KERNELS := $(wildcard timestone/kernel/*.pyx timestone/kernel/*.h mqtt_front/kernel/*.pyx mqtt_front/kernel/*.h)
SIDE_BY_SIDE := --numprocesses auto --maxprocesses 4 --dist loadgroup
FAST := not spark and not slow and not crash and not faults

.DEFAULT_GOAL := help
.PHONY: help install demo test check lint format types unit crash fuzz sanitize faults soak bench docs wheel clean distclean
MAKEFLAGS += --no-print-directory

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## 200 devices -> MQTT -> log -> pipeline -> Parquet, and every count compared (DEMO_MESSAGES=100000)
	@$(BIN)/python -m examples.demo --messages $(DEMO_MESSAGES)

test: $(INSTALLED) ## the whole test suite (TESTS="tests/cli -k serve" for a part of it)
	@$(PYTEST) $(if $(TESTS),$(TESTS),$(SIDE_BY_SIDE))

check: lint ## what to run before each commit: lint, then the tests without Spark, kills and broken disks
	@$(PYTEST) -q -m "$(FAST)"

lint: $(INSTALLED) types ## format, lint, types and who imports whom; changes nothing
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@report=$$($(BIN)/lint-imports --no-logo) || { echo "$$report"; exit 1; }

types: $(INSTALLED) ## mypy --strict over all packages and tests
	@mkdir -p build/names
	@ln -sfn ../../cli build/names/timestone_cli
	@ln -sfn ../../bench build/names/timestone_bench
	@ln -sfn ../../pipeline build/names/timestone_pipeline
	@$(BIN)/mypy

format: $(INSTALLED) ## rewrite the sources in the house format
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

unit: $(INSTALLED) ## the fast tests without lint
	@$(PYTEST) -q -m "$(FAST)"

crash: $(INSTALLED) ## just the tests that kill processes and cut power (TIMESTONE_CRASH_ROUNDS=1000 for longer)
	@$(PYTEST) -m crash $(TESTS)

faults: $(INSTALLED) ## just the tests in which the disk fails, fills up or flips bits
	@$(PYTEST) -m faults $(TESTS)

# Hours. Seeds and counts are printed; the first run is the one people ask for.
LONG := TIMESTONE_SEED=$(or $(TIMESTONE_SEED),random) TIMESTONE_CRASH_ROUNDS=1000 TIMESTONE_POWER_LOSS_IMAGES=20 \
  TIMESTONE_SEQUENCE_LENGTH=4 TIMESTONE_CALLS_STEP=1 TIMESTONE_BITS=8 TIMESTONE_CATALOGUE_ROUNDS=1000 \
  TIMESTONE_MODEL_EXAMPLES=2000 TIMESTONE_SOAK_SECONDS=3600 TIMESTONE_SCALE_TOPICS=100000 TIMESTONE_SCALE_LOGS=5000 \
  TIMESTONE_PIPELINE_SECONDS=600 TIMESTONE_PIPELINE_SOAK_S=3600
soak: $(INSTALLED) ## 1,000 kill -9 rounds, all crash and fault tests with long settings, the pipeline for an hour: hours
	@$(LONG) $(PYTEST) -q -s --timeout=0 tests/crash/test_kill.py -k random_moments
	@$(LONG) $(PYTEST) -s --timeout=0 -m "crash or faults" $(TESTS)
	@$(LONG) $(PYTEST) -s --timeout=0 tests/pipeline/test_soak.py

fuzz: $(INSTALLED) ## random and broken MQTT, ten million inputs (TIMESTONE_FUZZ_INPUTS=1000 for fewer)
	@TIMESTONE_FUZZ_INPUTS=$${TIMESTONE_FUZZ_INPUTS:-10000000} TIMESTONE_SEED=$${TIMESTONE_SEED:-random} \
	  $(PYTEST) --timeout 0 tests/mqtt_front/test_fuzz.py

# Python itself is not built with the sanitizer, so that has to be loaded first; its own allocator would hide the borders of
# small objects. Works on a copy: a kernel built like this loads nowhere else.
SANITIZED := build/sanitize
sanitize: $(INSTALLED) ## the compiled kernels under an address sanitizer, with their tests
	@library=$$($${CC:-cc} -print-file-name=libasan.so); [ -e "$$library" ] || { \
	  echo "no address sanitizer here: it comes with gcc, as libasan"; exit 1; }; \
	rm -rf $(SANITIZED) && mkdir -p $(SANITIZED) && \
	git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for one; do [ ! -e "$$one" ] || \
	  cp --parents "$$one" $(SANITIZED); done' sh && \
	python=$$PWD/$(BIN)/python && cd $(SANITIZED) && \
	TIMESTONE_SANITIZE=1 $$python setup.py -q build_ext --inplace && \
	{ ls timestone/kernel/_kernel.*.so mqtt_front/kernel/_kernel.*.so >/dev/null 2>&1 || { \
	  echo "the kernels were not compiled, so there is nothing to look at: $(BIN)/python -m pip install cython"; exit 1; }; } && \
	LD_PRELOAD="$$library" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc $$python -m pytest -q --capture=sys -p no:cacheprovider \
	  tests/timestone/kernel/test_loops.py tests/timestone/kernel/test_pure.py tests/timestone/kernel/test_open_records.py tests/timestone/writing/test_write_batch.py \
	  tests/mqtt_front/kernel/test_loops.py tests/mqtt_front/kernel/test_publish_fast_path.py tests/mqtt_front/kernel/test_topic_cache.py tests/mqtt_front/net/test_poller.py tests/mqtt_front/codec/test_scan.py tests/mqtt_front/codec/test_frame.py

bench: $(INSTALLED) ## how fast the engine is on this machine's disk
	@$(BIN)/timestone bench segment-throughput

docs: $(VENV)/.docs ## build the documentation as a site in build/site; links are checked
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet && echo "build/site/index.html"

$(VENV)/.docs: pyproject.toml | $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

wheel: $(INSTALLED) ## build dist/timestone-*.whl
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

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

# The first install downloads Spark, half a gigabyte: pip's own progress is left visible.
$(INSTALLED): pyproject.toml setup.py $(KERNELS) | $(SEEN_BY_SPARK)
	@echo "Installing Timestone and what it needs into $(VENV) (the first time this takes some minutes)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check --timeout 120 --editable '.[dev]'
	@touch $@

clean: ## remove what builds, tests and demos left behind
	rm -rf build dist ./*.egg-info .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## the same, and the virtual environment
	rm -rf $(VENV)
