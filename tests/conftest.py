"""What all tests share: the order of their files, and a Postgres whose data are made once."""

from pathlib import Path

import pytest

from tests import made_postgres

LONGEST = (
    "e2e/test_docs_stack.py",
    "e2e/test_bench.py",
    "chaos/test_chaos.py",
    "e2e/test_docs.py",
    "chaos/test_kill.py",
    "e2e/test_cli_dev_stack.py",
)
FOLDERS = ("simulation", "storms", "e2e", "chaos", "golden", "contract", "actors", "tidy")
"""Those with the longest files first; what `tidy` reads and keeps makes Python slower for all that come after it."""


def pytest_collection_modifyitems(items):
    """Begin with the files that take longest: one that begins last would leave all other processes idle."""
    items.sort(key=lambda item: _place(item.path))


def _place(path: Path) -> tuple[int, int]:
    folder, name = path.parent.name, f"{path.parent.name}/{path.name}"
    return (
        LONGEST.index(name) if name in LONGEST else len(LONGEST),
        FOLDERS.index(folder) if folder in FOLDERS else 0,
    )


@pytest.fixture(scope="session")
def postgres_made(tmp_path_factory, worker_id) -> Path:
    """The folder of a Postgres that was never started, to be copied by `made_postgres.copied`."""
    return made_postgres.made(tmp_path_factory, worker_id)
