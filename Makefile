# Two commands set everything up on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
EXTRAS := spark,shell,kafka,server,dev
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# uv installs in a third of pip's time; pip is for where only it knows how to reach the packages (mirrors, proxies)
INSTALL = $(BIN)/python -m uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[$(1)]' \
	|| $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[$(1)]'
ROWS ?= 200000
# a worker that waits for Spark leaves its core to another
WORKERS ?= 4

# Python keeps what it compiled: tests start some hundred processes, each of which needs a third of the time then.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test browser clients types all-tests check thorough bench bench-spark bench-aggregates bench-relations bench-patterns bench-nexmark bench-queries format docs clean setup help

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

setup: $(STAMP) ## make the virtual environment

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	# modules are compiled when they are imported, which most never are
	-$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt uv
	$(call INSTALL,$(EXTRAS))
	touch $(STAMP)

run: $(STAMP) ## run the main job: an auction pipeline on Spark in local mode
	$(BIN)/millstream generate nexmark --rows $(ROWS) --seed 42 --out out/auctions
	$(BIN)/millstream run examples/auctions/pipeline.sql

test: $(STAMP) ## lint, types and all tests
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/ruff check src tests benchmarks examples
	$(MAKE) --no-print-directory -j 2 types all-tests

types: $(STAMP)
	$(BIN)/mypy

all-tests: $(STAMP)
	$(BIN)/python tests/quick_java.py
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=25

check: $(STAMP) ## lint, types and the fast tests, under a minute or two
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/mypy
	MILLSTREAM_TIER=quick $(BIN)/python -m pytest -m 'not spark and not slow' -n 2

browser: $(STAMP) ## the tests of the server's console, in Chromium (apt-get install chromium)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[browser]'
	$(BIN)/python -m pytest tests/server/test_console.py

# these clients want other versions of what we use, so they have an environment of their own
clients: $(STAMP) ## the tests with pgjdbc (what DBeaver uses), dbt and DuckDB's postgres extension (needs Java and Maven)
	test -x out/clients/bin/python || $(PYTHON) -m venv out/clients
	out/clients/bin/python -m pip install --quiet --no-compile --disable-pip-version-check \
		dbt-core==1.11.16 dbt-postgres==1.11.0 duckdb==1.5.5 duckdb-extension-postgres-scanner==1.5.5
	mvn -q -B dependency:copy -Dartifact=org.postgresql:postgresql:42.7.4 -DoutputDirectory=out/clients
	$(BIN)/python -m pytest tests/server/test_clients.py

docs: $(STAMP) ## the documentation as web pages, in out/site
	$(call INSTALL,docs)
	$(BIN)/mkdocs build --strict

thorough: $(STAMP) ## the random tests on twenty times as many examples (hours)
	MILLSTREAM_TIER=thorough $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

bench: $(STAMP) ## measure: ratios against DuckDB, Polars and bare loops in one run
	$(BIN)/python benchmarks/over.py
	$(BIN)/python benchmarks/over_kernel.py

bench-spark: $(STAMP) ## measure the Spark host against Spark's own operators, throughput and latency (about an hour)
	$(BIN)/python benchmarks/kernel_state.py
	$(BIN)/python benchmarks/spark.py
	$(BIN)/python benchmarks/spark_latency.py

bench-aggregates: $(STAMP) ## measure aggregates written in SQL: figures 4 to 7 of the Stream Mill paper, as text and PNG
	$(call INSTALL,bench)
	$(BIN)/python benchmarks/aggregates.py

bench-relations: $(STAMP) ## measure relations: the thesis' experiments, intervals against changes (about two minutes)
	$(BIN)/python benchmarks/relations.py

bench-patterns: $(STAMP) ## measure row patterns against PyFlink (which it installs for itself) and a loop by hand; memory
	$(BIN)/python benchmarks/patterns.py

bench-nexmark: $(STAMP) ## measure NEXMark q5 and q8 embedded, on Spark, and by Spark's own operators
	$(BIN)/python benchmarks/nexmark_spark.py

bench-queries: $(STAMP) ## measure one to a million standing queries, the papers' workloads and Esper
	$(BIN)/python benchmarks/queries.py --plots
	$(BIN)/python benchmarks/queries_workloads.py --ablations --plots
	$(BIN)/python benchmarks/queries_channels.py
	$(BIN)/python benchmarks/queries_spark.py
	$(BIN)/python benchmarks/queries_esper.py

format: $(STAMP) ## format the code
	$(BIN)/ruff format src tests benchmarks examples
	$(BIN)/ruff check --fix src tests benchmarks examples

clean: ## remove what was made
	rm -rf $(VENV) out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
