"""The queries, by name: `-- name: x` in a file of `sql/<store>/`, up to its last semicolon."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "sql"


def load(folder: Path) -> dict[str, str]:
    """Return every named query of a folder. A name that is used twice is an error."""
    blocks = [block for file in sorted(folder.glob("*.sql")) for block in read(file).split("-- name: ")[1:]]
    named = [block.split("\n", 1) for block in blocks]
    queries = {name.strip(): text[: text.rindex(";")] for name, text in named}
    if len(queries) != len(named):
        raise ValueError("two queries have one name")
    return queries


def read(file: Path) -> str:
    """Return the text of a file of SQL."""
    return file.read_text(encoding="utf-8")
