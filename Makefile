# Everything a newcomer or CI runs. Needs only Python 3.11+ and make; the rest comes into .venv.
#
#   make demo       see it work           make check      format, lint, types, layers
#   make test       the default suite     make test-spark what runs on Spark
#   make test-all   everything, slow suites too
#   make bench      measure against C     make generate   docs and code from the source
#   make docs       the documentation as a site in build/site
#   make clean      remove what was installed

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# One more than the two cores of a small machine: tests also wait, for timeouts, processes and Spark.
WORKERS ?= 3
# Suites start thousands of Python processes: each would compile all of its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-spark test-crash test-slow test-all test-spark-4.2 check format generate docs fuzz bench bench-documents bench-graphs bench-sessions bench-pipeline bench-streams bench-isolation bench-face bench-large bench-ask bench-compare requirements clean install

install: $(READY)

# Hashes are checked, and no index address is written down: your own pip configuration decides.
$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Fourfold needs Python 3.11 or newer; set PYTHON=python3.x")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

demo: $(READY)
	$(BIN)/fourfold demo

# tests/conftest.py distributes the files: those with Spark to one worker, others by package, the longest first.
DEFAULT = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
test: $(READY)
	$(BIN)/python -m pytest $(DEFAULT) -m "not slow and not spark"

# One process: one JVM starts and warms up.
test-spark: $(READY)
	$(BIN)/python -m pytest -m "spark and not slow"

# Every property once more, now with all of its examples. The longest tests share a file, so here
# the workers take single tests from each other.
test-slow: $(READY)
	THOROUGH_TESTS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "slow or hypothesis"

# What of that is quick enough for every change: kills and power cuts, long properties, and the conformance suite of streams.
CRASH := tests/kernel tests/reliability tests/streams tests/server tests/client tests/graphs tests/sessions
test-crash: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m slow $(CRASH)

test-all: $(READY)
	THOROUGH_TESTS=1 $(BIN)/python -m pytest $(DEFAULT)

# The oldest Spark that is supported. Its environment has only Spark of its own; all else comes from the other one.
OLD_SPARK := .venv-spark-4.2
test-spark-4.2: $(READY)
	test -x $(OLD_SPARK)/bin/python || $(PYTHON) -m venv $(OLD_SPARK)
	$(OLD_SPARK)/bin/python -m pip install --quiet --disable-pip-version-check "pyspark==4.2.*"
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" \
	  > "$$($(OLD_SPARK)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rest.pth"
	sed '1s|.*|#!$(CURDIR)/$(OLD_SPARK)/bin/python|' $(BIN)/fourfold > $(OLD_SPARK)/bin/fourfold
	chmod +x $(OLD_SPARK)/bin/fourfold
	$(OLD_SPARK)/bin/python -m pytest tests/pipeline -m "spark and not slow"

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# What is written from the source: parts of the documentation, and the client for threads.
generate: $(READY)
	$(BIN)/python scripts/generate_client.py
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/drawings.py

# The documentation as a site in build/site, with search and the API. Its tools have an environment of their own, which
# also sees the packages of the other one.
DOCS_VENV := .venv-docs
docs: $(READY)
	test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	$(BIN)/python -c 'import site, sys; print("\n".join(path for path in sys.path if path.endswith("site-packages")))' \
	  > "$$($(DOCS_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rest.pth"
	PYTHONPATH=src NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/python -m mkdocs build --quiet

fuzz: $(READY)
	$(BIN)/python -m bench.reliability fuzz

bench: $(READY)
	$(BIN)/python -m bench.kernel

bench-documents: $(READY)
	$(BIN)/python -m bench.documents

bench-graphs: $(READY)
	$(BIN)/python -m bench.graphs
	$(BIN)/python -m bench.graphs.sync

bench-sessions: $(READY)
	$(BIN)/python -m bench.sessions

bench-streams: $(READY)
	$(BIN)/python -m bench.streams

bench-archive: $(READY)
	$(BIN)/python -m bench.archive

bench-isolation: $(READY)
	$(BIN)/python -m bench.isolation

bench-large: $(READY)
	$(BIN)/python -m bench.large

bench-face: $(READY)
	$(BIN)/python -m bench.face

bench-ask: $(READY)
	$(BIN)/python -m bench.ask

bench-compare: $(READY)
	$(BIN)/python -m bench.compare

bench-pipeline: $(READY)
	$(BIN)/python -m bench.pipeline

# Pin again: `uv` resolves for every platform and Python version that we support. core.txt is the library alone, for
# deployment; dev.txt is everything, for development; docs.txt builds the site.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-emit-find-links --no-annotate --custom-compile-command "make requirements" pyproject.toml

requirements: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(COMPILE) -o requirements/core.txt
	$(COMPILE) --extra dev --extra spark -o requirements/dev.txt
	$(COMPILE) --extra docs -o requirements/docs.txt

clean:
	rm -rf $(VENV) $(OLD_SPARK) $(DOCS_VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis bench/.build
