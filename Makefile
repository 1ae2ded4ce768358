# Each recipe is a thin line over a command that can be typed by hand; the README lists them.
PYTHON ?= python3
PORT ?= 8000
CONSTRAINTS ?= constraints.txt
BIN := .venv/bin
ON := $(if $(DEVICE),--device $(DEVICE))
READY := .venv/.ready
SHELL := bash
# One command of a recipe: it is printed, runs with the programs of .venv, one thread each, and its seconds are told.
STEP = @export PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} TIMEFORMAT="%1R s"; set -x; time
# All files that git tracks or would add, as one hash; the index of the checkout stays as it is.
TREE = $$(export GIT_INDEX_FILE=$$(mktemp -u) && git add --all && git write-tree && rm "$$GIT_INDEX_FILE")
# From Python 3.12 on the interpreter itself tells which lines ran. Before, each call would ask a tracer, and the tests
# take half as long again; coverage is left to those versions, all of which the workflow runs.
COVERAGE = $(shell $(BIN)/python -c "import sys; \
  print('--cov=hot_nbdev --cov-report=term --cov-fail-under=95' * (sys.version_info >= (3, 12)))")

.PHONY: book test same lab serve bench mutants stress pdf epub clean lock

book: $(READY)  ## execute every chapter and render the site into _docs
	$(STEP) nbdev_export
	$(STEP) python tools/execute.py
	$(STEP) python tools/book.py --nbs _build/nbs

# the rules of taste are for the notebooks; in the exported modules a name that nobody defines is looked for
test: $(READY)  ## everything that decides whether the project is sound
	$(STEP) $(MAKE) --no-print-directory same
	$(STEP) ruff check nbs tools tests studies bench examples setup.py
	$(STEP) ruff check --isolated --select F821,F822,F823 hot_nbdev
	$(STEP) python tools/house.py --check
	$(STEP) nbdev_test --n_workers 2
	$(STEP) python tools/book.py
	$(STEP) env $(if $(COVERAGE),COVERAGE_CORE=sysmon) python -m pytest tests -q -n 2 --dist loadgroup $(COVERAGE)

same:  # exporting and cleaning make, change and remove no file; edits that are not committed count not
	@before=$(TREE) && $(BIN)/nbdev_export && $(BIN)/nbdev_clean && git diff --exit-code --stat $$before $(TREE) || \
	  { echo "notebooks and library were not in step; now changed, look at these files and commit them"; exit 1; }

lab: $(READY)  ## JupyterLab on the chapters
	$(BIN)/jupyter lab --notebook-dir=nbs

serve:  ## read the site that `make book` rendered
	@test -f _docs/index.html || { echo "no site in _docs yet: run 'make book' first"; exit 1; }
	@echo "http://localhost:$(PORT)  (end with Ctrl-C)"
	@$(PYTHON) -m http.server $(PORT) --bind 127.0.0.1 --directory _docs

bench: $(READY)  ## time the layers against their limits and their rivals: make bench DEVICE=cuda
	$(BIN)/python bench/attention.py $(ON)
	$(BIN)/python bench/ndlinear.py $(ON)
	$(BIN)/python bench/growth.py $(ON)
	$(BIN)/python bench/parts.py $(ON)

mutants: $(READY)  ## break the library in small ways, and see whether its tests notice
	$(BIN)/python tools/mutants.py

stress: $(READY)  ## try for an hour or two what the tests try in minutes: shapes, kills, full disks, damaged files
	$(BIN)/python tests/stress.py

pdf: $(READY)  ## the site's pages as _build/hot_nbdev.pdf, after `make book`
	$(BIN)/python tools/printed.py

epub: $(READY)  ## the site's pages as _build/hot_nbdev.epub, after `make book`
	$(BIN)/python tools/epub.py

# one exact, tested version of everything, for every supported Python. What only a CUDA build of torch brings is left
# out: torch itself pins it. This needs uv.
lock:
	echo "# Exact versions that were tested; written by \`make lock\` from settings.ini." > constraints.txt
	echo "torch==2.13.0" | uv pip compile setup.py - --all-extras --quiet --universal --no-header --no-annotate \
	  --python-version 3.10 | grep -vE "^(nvidia-|cuda-|triton)" >> constraints.txt

# the lowest versions that settings.ini allows for the library and its training, as constraints for pip
floors.txt: settings.ini
	sed -nE "s/^(train_)?requirements = //p" $< | tr " " "\n" | sed -E "s/^([a-z-]+)[^ ]*>=([0-9.]+).*/\1==\2/" > $@

clean:  ## remove what was built; the sources stay
	rm -rf .venv _docs _proc _build *.egg-info .pytest_cache .ruff_cache .hypothesis .coverage*

$(READY): settings.ini setup.py $(CONSTRAINTS)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv .venv
	@echo "installing about 2 GB into .venv (more with a build of torch for GPUs); this takes several minutes"
	$(BIN)/python -m pip install --disable-pip-version-check -c $(CONSTRAINTS) -e ".[dev]"
	@touch $@
