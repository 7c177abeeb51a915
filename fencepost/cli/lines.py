"""Lines of a JSONL file, each on its way to be a run: its number, its bytes, the id it asks for, or its flaw.

A line ends at a line feed and nowhere else: U+2028 and the like are text inside JSON. The bytes travel as they are,
so that no number loses a digit on the way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from .exits import CommandError, Exit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import IO

__all__ = ["IdTemplate", "Line", "lines_of", "template_of"]

_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is not empty. `flaw` says why it cannot be sent; then there is no id."""

    number: int
    raw: bytes
    id: str = ""
    flaw: str = ""


@dataclass(frozen=True, slots=True)
class IdTemplate:
    """Makes a run's id from a line's fields: `{id}`, `order-{id}`, `{customer.number}`. Empty makes none."""

    text: str

    @property
    def is_fixed(self) -> bool:
        """Whether every line would get the same id."""
        return bool(self.text) and not _FIELD.search(self.text)

    def id_of(self, value: Any) -> str:
        """Return the id of a line.

        Raises:
            ValueError: a field is missing, empty, or neither a text nor a whole number.
        """
        return _FIELD.sub(lambda found: _named(value, found[1]), self.text)


def template_of(text: str) -> IdTemplate:
    """Return the template, or refuse one that names no field between its braces.

    Raises:
        CommandError: it does.
    """
    left = _FIELD.sub("", text)
    if "{}" in text or "{" in left or "}" in left:
        raise CommandError(f"the id {text!r} must name fields between its braces, such as '{{id}}'", Exit.USAGE)
    return IdTemplate(text)


def _named(value: Any, path: str) -> str:
    for name in path.split("."):
        if not isinstance(value, dict):
            raise ValueError(f"it has no field {path!r} to take the id from")  # noqa: TRY004  (a flaw of the line, no bug)
        fields = cast("dict[str, Any]", value)
        if name not in fields:
            raise ValueError(f"it has no field {path!r} to take the id from")
        value = fields[name]
    if value == "":
        raise ValueError(f"its field {path!r} is empty, so it cannot be an id")
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"its field {path!r} is neither a text nor a whole number, so it cannot be an id")


def lines_of(file: IO[bytes] | Iterable[bytes], template: IdTemplate) -> Iterator[Line]:
    """Yield every line that is not empty, as it is read."""
    for number, text in enumerate(file, 1):
        raw = (text.removeprefix(_BOM) if number == 1 else text).removesuffix(b"\n").removesuffix(b"\r")
        if raw.strip():
            yield _line(number, raw, template)


def _line(number: int, raw: bytes, template: IdTemplate) -> Line:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Line(number, raw, flaw=f"it is no JSON: {error}")
    try:
        return Line(number, raw, id=template.id_of(value))
    except ValueError as error:
        return Line(number, raw, flaw=str(error))
