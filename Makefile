# The two commands of the README and what else a contributor runs. All need a Python 3.11+;
# `make test` installs what it needs besides (tests/setup.sh).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Tests start hundreds of commands, which need not compile the same modules each time.
unexport PYTHONDONTWRITEBYTECODE

# in the order written: what is installed may be needed to make the environment
.NOTPARALLEL:
.PHONY: demo setup test test-fast soak peer coverage lint types docs check picture kafka clean

demo: $(VENV)/.demo
	$(BIN)/counterpoise demo --output demo

# Java, Maven and a Chromium, for the tests with a real Kafka, Spark and the report's page
setup:
	@tests/setup.sh

# three workers have the tests with a real Kafka, which mostly wait, one those with Spark, one the rest
WORKERS := --numprocesses 5
test: setup $(VENV)/.dev
	$(BIN)/python -m pytest $(WORKERS)

# long tests, and examples that differ from run to run: make soak MINUTES=60 SEED=1
soak: setup $(VENV)/.dev
	$(BIN)/python tests/support/soak.py $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

# branch coverage of the packages by `make test`, processes that tests start included
coverage: setup $(VENV)/.dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(WORKERS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered

# for authors of goals: goals, plug-ins, plans, pages and doctests, without Java or what takes
# long, in about a minute
FAST := tests/goals tests/plugins tests/docs goals cluster_model balancer \
	$(addprefix tests/balancer/test_,operations.py optimizer.py properties.py reasons.py \
	remedies.py scopes_in_search.py autobalancer_scenarios.py)
test-fast: $(VENV)/.dev
	$(BIN)/python -m pytest --numprocesses 2 -m 'not (peer or kafka or spark or browser or slow)' $(FAST)

# the peers of the benchmarks, in environments of their own: one needs a Python 3.12+ besides,
# one Java and Maven
peer: $(VENV)/.dev
	$(BIN)/python -m pytest --numprocesses 2 -m peer

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# modules of tests are in no package, so of two with one name each has a run of its own
TESTS := $(filter-out %/conftest.py,$(wildcard tests/*/*.py))
CHECK_TESTS = MYPYPATH=.:$(subst $(eval) ,:,$(sort $(dir $(TESTS)))) $(BIN)/mypy --explicit-package-bases
types: $(VENV)/.dev
	$(BIN)/mypy
	@$(CHECK_TESTS) benchmarks tests/conftest.py $(TESTS)
	@set -e; for file in $(wildcard tests/*/conftest.py); do $(CHECK_TESTS) $$file; done

# the guides and the API reference, to site/index.html; every link is checked
docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

# what decides whether a change lands; what takes seconds comes first
check: lint types docs test peer

picture: $(VENV)/.dev
	$(BIN)/python -m balancer.report docs/images/before-after.svg
	$(BIN)/python tests/server/page_picture.py docs/images/page.png

# a real Kafka to try things on, until Ctrl-C: three brokers with racks, skewed topics, traffic and
# measured loads, on the ports from 9092 on (make kafka PORT=19092)
kafka: $(VENV)/.demo
	@PORT=$(PORT) $(BIN)/python tests/kafka/serve.py

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is older than 3.11; name a newer one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "make: $(PYTHON) cannot make environments; install its venv module (Debian: apt-get install python3-venv)" >&2; exit 1; }

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[kafka]'
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[kafka,spark,collocation,fast,dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) demo build dist site *.egg-info
