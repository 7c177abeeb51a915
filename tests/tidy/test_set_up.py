"""From a clone to a first run: the lock, the bootstrap, the recipes."""

import ast
import os
import re
import shutil
import subprocess
import sys

import pytest

RECIPES = {"setup", "check", "lint", "fix", "types", "tidy", "test", "storm", "simulate", "bench", "wheel", "lock"}


@pytest.fixture(scope="module")
def lock(root) -> str:
    return (root / "requirements.lock").read_text(encoding="utf-8")


def normal(requirement: str) -> str:
    """Return a requirement's name as an index spells it."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def test_the_lock_names_no_host_and_no_place(lock):
    assert not re.search(r"://|index-url|find-links|trusted-host|file:|^-e ", lock, re.MULTILINE)


def test_the_lock_pins_every_package_with_hashes(lock):
    entries = re.findall(r"^(?![#\s])(.+?)(?=^\S|\Z)", lock, re.MULTILINE | re.DOTALL)

    assert [entry.split()[0] for entry in entries if "==" not in entry or "--hash=sha256:" not in entry] == []


def test_the_lock_has_every_dependency_and_what_builds_us(lock, project):
    groups = [*project["project"]["optional-dependencies"].values(), *project["dependency-groups"].values()]
    asked = project["project"]["dependencies"] + [name for group in groups for name in group]
    locked = {normal(line) for line in lock.splitlines() if re.match(r"[\w.-]+==", line)}

    assert {normal(name) for name in [*asked, "setuptools", "wheel"]} - locked == set()


def test_bootstrap_imports_nothing_that_is_not_in_the_standard_library(root):
    tree = ast.parse((root / "bootstrap.py").read_text(encoding="utf-8"))
    names = [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]

    assert {name.split(".")[0] for name in names} - sys.stdlib_module_names == set()


def test_bootstrap_parses_on_an_old_python_so_that_it_can_say_what_is_wrong(root):
    assert ast.parse((root / "bootstrap.py").read_text(encoding="utf-8"), feature_version=(3, 7))


def test_bootstrap_refuses_to_replace_a_folder_that_is_no_environment(root, tmp_path):
    for name in ("bootstrap.py", "requirements.lock", "pyproject.toml"):
        shutil.copy(root / name, tmp_path)
    precious = tmp_path / ".venv" / "precious"
    precious.parent.mkdir()
    precious.write_text("mine")

    done = subprocess.run(
        [sys.executable, tmp_path / "bootstrap.py"], capture_output=True, text=True, check=False, timeout=30
    )

    assert done.returncode == 1
    assert "is no virtual environment: move it away" in done.stderr
    assert precious.read_text() == "mine"


def test_just_has_the_recipes_that_pages_name(root):
    recipes = re.findall(r"^(\w+)(?: \*args)?:(?!=)", (root / "justfile").read_text(encoding="utf-8"), re.MULTILINE)

    assert RECIPES - set(recipes) == set()


def test_ci_can_be_run(root):
    assert os.access(root / ".ci/run", os.X_OK)
