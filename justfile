# What a developer does here. `just` is in .venv: `python3 bootstrap.py just check` works without installing it.

set positional-arguments

in_venv := "python3 bootstrap.py"

# Show the recipes.
[private]
default:
    @{{ in_venv }} just --list --unsorted

# Make or repair .venv from requirements.lock.
setup:
    {{ in_venv }}

# All that has to pass before a change is done; `tidy` first, because it is quick and says what to move.
check: lint types tidy test

# Format and rules, changing nothing.
lint:
    {{ in_venv }} ruff format --check --output-format=concise .
    {{ in_venv }} ruff check .

# Format, and repair what can be repaired without thinking.
fix:
    {{ in_venv }} ruff check --fix .
    {{ in_venv }} ruff format .

# Both type checkers, strict.
types:
    {{ in_venv }} mypy
    {{ in_venv }} basedpyright

# The rules of the tree: floors, sizes, leftovers, pages.
tidy:
    {{ in_venv }} pytest -q tests/tidy

# The tests; arguments go to pytest.
test *args:
    {{ in_venv }} pytest "$@"

# Races of steps, timers and payloads on real nodes, one killed every few seconds; every log is replayed. `--runs 10000`.
storm *args:
    {{ in_venv }} python tests/storms/run.py "$@"

# Kill -9 everything at random under the orders example, fifty times; the ledger decides.
storm-orders *args:
    {{ in_venv }} python tests/chaos/storm.py "$@"

# Every way to kill, stop, cut off or crowd real nodes on Postgres, once; `--minutes 30` goes on, `--seed 7` repeats.
chaos *args:
    {{ in_venv }} python tests/chaos/chaos.py "$@"

# Seeded simulations of the real actors; a number says how many, `SEED=17` in the environment repeats one.
simulate *args:
    {{ in_venv }} python tests/simulation/run.py "$@"

# Measure, in one command.
bench *args:
    {{ in_venv }} python bench/run.py "$@"

# Build the wheel into dist/, then import another build of it outside the checkout.
wheel:
    rm -rf build dist
    {{ in_venv }} python -m pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir dist .
    rm -rf build
    {{ in_venv }} pytest -q tests/tidy/test_wheel.py
    @ls dist

# Write requirements.lock anew; `just lock --upgrade` takes newer versions.
lock *args:
    {{ in_venv }} uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --all-extras --group dev \
        --no-emit-index-url --no-emit-find-links --custom-compile-command "just lock" \
        --output-file requirements.lock "$@" pyproject.toml

# The tests on each other Python from 3.11 on that is installed here, each in its own copy of the tree.
pythons *args:
    #!/usr/bin/env bash
    set -euo pipefail
    copy=$(mktemp -d)
    trap 'rm -rf "$copy"' EXIT
    here=$(python3 -c 'import sys; print(sys.version_info.minor)')
    for minor in 11 12 13 14; do
      [ "$minor" != "$here" ] || continue
      python=""
      for found in "python3.$minor" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$minor".*/bin/python; do
        if "$found" -c '' 2>/dev/null; then python=$found; break; fi
      done
      [ -n "$python" ] || { echo "Python 3.$minor: not here"; continue; }
      mkdir "$copy/$minor"
      git ls-files -coz --exclude-standard | xargs -0 cp --parents -t "$copy/$minor"
      echo "Python 3.$minor"
      (cd "$copy/$minor" && "$python" bootstrap.py pytest -q "$@")
    done
