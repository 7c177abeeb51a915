"""Queries as the server gets them: numbered parameters, or behind a pooler one text with its parameters in it.

A pooler lends a server connection for one transaction, so nothing prepared can be counted on. There a query goes as
`COPY (…) TO STDOUT` by the simple protocol: one round trip, no transaction held by a client, rows as JSON. Binary,
because the text format of COPY escapes what JSON has escaped already.

Every parameter is cast where it stands (`:run_id::text`), so that its literal means what its value would.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .. import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

FOLDER: Final = queries.FOLDER / "postgres" / "queries"
PARAMETER: Final = re.compile(r"(?<!:):([a-z]\w*)")
"""`:name`, not the second colon of a cast."""

BYTES: Final = "body"
"""The name of every column that holds bytes: in JSON they are hexadecimal text."""

COPY_HEADER_BYTES: Final = 19
"""Signature, flags, and an empty extension."""


class Row(dict[str, Any]):
    """A row that came as JSON: by name, and in order, as the driver's own rows are."""

    def __iter__(self) -> Iterator[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]  (a row is its values)
        return iter(self.values())


@dataclass(frozen=True, slots=True)
class Statement:
    """One query: its text with `$1`, `$2` …, and the names of these."""

    name: str
    text: str
    parameters: tuple[str, ...]

    def arguments(self, values: Mapping[str, object]) -> list[object]:
        """Return the values in the order of their numbers."""
        return [values[name] for name in self.parameters]

    def with_literals(self, values: Mapping[str, object]) -> str:
        """Return the text with the values in it."""
        literals = [literal(value) for value in self.arguments(values)]
        return re.sub(r"\$(\d+)", lambda number: literals[int(number[1]) - 1], self.text)


def load(schema: str, folder: Path = FOLDER) -> dict[str, Statement]:
    """Return every query of the folder, for a schema."""
    found = queries.load(folder)
    return {name: numbered(name, text.replace("{schema}", quoted(schema))) for name, text in found.items()}


def numbered(name: str, text: str) -> Statement:
    """Return a query whose named parameters are numbered in the order they appear in."""
    text = re.sub(r"^\s*--.*\n?", "", text, flags=re.MULTILINE).strip()
    names = tuple(dict.fromkeys(PARAMETER.findall(text)))
    return Statement(name, PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text), names)


def quoted(identifier: str) -> str:
    """Return a name as SQL spells it."""
    doubled = identifier.replace('"', '""')
    return f'"{doubled}"'


def literal(value: object) -> str:
    """Return a value as SQL spells it; its type is in the cast that follows. Safe whatever the server's settings.

    Raises:
        ValueError: a text holds NUL, which Postgres cannot keep.
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int():
            return f"({value})"
        case bytes():
            return f"E'\\\\x{value.hex()}'"
        case str():
            return _text(value)
        case list() | tuple():
            return _array(value)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            raise TypeError(f"a {type(value).__name__} cannot be a parameter")


def _text(value: str) -> str:
    if "\0" in value:
        raise ValueError("a text holds NUL, which Postgres cannot keep")
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"


def _array(values: Iterable[object]) -> str:
    return f"ARRAY[{','.join(map(literal, values))}]"


def as_json_rows(text: str) -> str:
    """Return a query that answers each row of another one as JSON."""
    return f"SELECT row_to_json(t) FROM ({text}) t"  # noqa: S608  (the text is ours, its values are escaped)


def rows_of_copy(data: bytes) -> list[Row]:
    """Read what `COPY … (FORMAT binary)` of one JSON column wrote."""
    rows, position = list[Row](), COPY_HEADER_BYTES
    while int.from_bytes(data[position : position + 2], "big", signed=True) == 1:
        start = position + 6
        end = start + int.from_bytes(data[position + 2 : start], "big")
        rows.append(_row(data[start:end]))
        position = end
    return rows


def _row(line: bytes) -> Row:
    row = Row(msgspec.json.decode(line, type=dict[str, Any]))
    if isinstance(hexadecimal := row.get(BYTES), str):
        row[BYTES] = bytes.fromhex(hexadecimal.removeprefix("\\x"))
    return row
