"""What a user installs: built from a copy, imported outside the checkout, where nothing else of ours is seen."""

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(180)
FOLDERS = ("actors", "bus", "world", "fencepost")


@pytest.fixture(scope="module")
def wheel(root, tmp_path_factory) -> Path:
    """A wheel of the tree as it is. In place, setuptools leaves a `build/` that later wheels inherit."""
    copy = tmp_path_factory.mktemp("copy")
    for name in FOLDERS:
        shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, copy)
    pip = [sys.executable, "-I", "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", copy / "dist", copy], check=True
    )
    return next((copy / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def names(wheel) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_holds_every_module_and_query_of_the_tree(names, root):
    of_ours = [path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in {".py", ".sql"}]

    assert {installed(path.relative_to(root)) for path in of_ours} - names == set()


def installed(path: Path) -> str:
    return path.as_posix() if path.parts[0] == "fencepost" else f"fencepost/{path.as_posix()}"


def test_the_wheel_holds_no_stub_that_names_folders_which_are_not_there(names):
    assert [name for name in names if name.endswith(".pyi")] == []
    assert "fencepost/py.typed" in names


def test_the_wheel_carries_its_license_and_the_command(names):
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    assert [name for name in names if name.endswith("entry_points.txt")]


def test_everything_in_the_wheel_can_be_imported_outside_the_checkout(wheel, names, tmp_path):
    venv.create(tmp_path / "user", with_pip=False)
    python = tmp_path / "user" / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "user")}))
    zipfile.ZipFile(wheel).extractall(site)
    # The folder alone: `.pth` files in it, such as the one of the editable install, are not read from here.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    modules = sorted(dotted(name) for name in names if name.endswith(".py"))

    program = "import sys, fencepost; from importlib import import_module as load; [*map(load, sys.argv[1:])]"
    program += "; print(fencepost.__file__)"
    done = subprocess.run(
        [python, "-I", "-c", program, *modules], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)


def dotted(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
