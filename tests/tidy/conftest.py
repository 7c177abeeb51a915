"""The tree as the rules see it: every file of ours, read and parsed once."""

import ast
import re
import subprocess
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("world", "bus", "actors", "fencepost")


@dataclass(frozen=True)
class File:
    """A file that belongs to the repository."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def top(self) -> str:
        return self.path.relative_to(ROOT).parts[0]

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8", errors="replace")  # some inputs are wrong on purpose

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.name)

    def at(self, node: ast.AST | int, says: str = "") -> str:
        """Return the place of a node or line, as editors open it."""
        line = node if isinstance(node, int) else node.lineno
        return f"{self.name}:{line} {says}".rstrip()


@dataclass(frozen=True)
class Block:
    """A fenced code block of a page: its language, the line it begins on, its text."""

    page: File
    line: int
    language: str
    text: str


def paths() -> list[Path]:
    """Return what git would keep; without git (an unpacked archive) what lies here and is not made by tools."""
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, capture_output=True, check=False, text=True
    )
    if listed.returncode == 0:
        found = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if not is_made(path.relative_to(ROOT))]
    return sorted(path for path in found if path.is_file())


def is_made(path: Path) -> bool:
    return any(
        part in {"build", "dist", "__pycache__"}
        or part.endswith(".egg-info")
        or re.match(r"\.(?!ci$|editor|git)", part)
        for part in path.parts
    )


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def files() -> list[File]:
    """Every text file of the repository."""
    return [File(path) for path in paths() if b"\0" not in path.read_bytes()[:8000]]


@pytest.fixture(scope="session")
def programs(files) -> list[File]:
    """Every Python file: the floors, tests, examples, benchmarks, scripts."""
    return [file for file in files if file.path.suffix == ".py"]


@pytest.fixture(scope="session")
def modules(programs) -> list[File]:
    """The Python files that are installed at a user's."""
    return [file for file in programs if file.top in FLOORS]


@pytest.fixture(scope="session")
def tests(programs) -> list[File]:
    return [file for file in programs if file.top == "tests"]


@pytest.fixture(scope="session")
def pages(files) -> list[File]:
    return [file for file in files if file.path.suffix == ".md"]


@pytest.fixture(scope="session")
def blocks(pages) -> list[Block]:
    fence = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [
        Block(page, page.text.count("\n", 0, found.start()) + 1, found[1], found[2])
        for page in pages
        for found in fence.finditer(page.text)
    ]


@pytest.fixture(scope="session")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
