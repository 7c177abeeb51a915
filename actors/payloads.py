"""A request over HTTP as a payload: its body as JSON, and what is kept of its headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

import msgspec

from .errors import InvalidInput
from .shape import Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

FIELDS_MAX: Final = 1000
HEADERS_MAX: Final = 64
HEADERS_BYTES_MAX: Final = 8 * 1024

FORM: Final = "application/x-www-form-urlencoded"
_BOM: Final = b"\xef\xbb\xbf"
_CHARSETS: Final = frozenset({"utf-8", "utf8", "us-ascii", "iso-8859-1", "windows-1252"})
"""Python knows some whose reading is slow, or grows a short text into a huge one."""
_SECRET: Final = frozenset(
    {"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "x-auth-token"}
)
_bytes: Final = Shape(bytes, "payload bytes")


def text_of(raw: bytes, content_type: str, *, takes_bytes: bool = False) -> bytes:
    """Return a body as JSON text (JSON itself is not looked at here), by its media type.

    A form becomes an object of texts, of lists where a field is there twice; any other text a text. For a model that is
    `bytes` the body goes as it is, whatever it says it is. An empty body is null.

    Raises:
        InvalidInput: it cannot be read as what it says.
    """
    if takes_bytes:
        return _bytes.encode(raw)
    media, charset = _media(content_type)
    if not raw:
        return b"null"
    if media == "application/json" or media.endswith("+json"):
        return raw.removeprefix(_BOM)
    text = _decoded(raw, charset)
    return msgspec.json.encode(_form(text) if media == FORM else text)


def _media(content_type: str) -> tuple[str, str]:
    media, *parameters = (part.strip() for part in content_type.lower().split(";"))
    charset = next((p.removeprefix("charset=").strip("\"' ") for p in parameters if p.startswith("charset=")), "utf-8")
    return media, charset


def _decoded(raw: bytes, charset: str) -> str:
    if charset not in _CHARSETS:
        raise InvalidInput(f"the body is in charset {charset[:40]!r}: send it in utf-8")
    try:
        return raw.decode(charset)
    except UnicodeDecodeError:
        raise InvalidInput(f"the body is no text in {charset}; a hook whose model is bytes takes any") from None


def _form(text: str) -> dict[str, str | list[str]]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except UnicodeDecodeError:
        raise InvalidInput("a field of the form is no text in utf-8") from None
    except ValueError:
        raise InvalidInput(f"the form has more than {FIELDS_MAX:,} fields") from None
    found = dict[str, list[str]]()
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def kept(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers a run may see, by their name in small letters; what is a secret or beyond the bounds is left.

    A log is no place for credentials, and a sender cannot help what a proxy adds.
    """
    found, size = dict[str, str](), 0
    for given, value in headers.items():
        name = given.lower()
        size_with = size + len(name.encode()) + len(value.encode())
        if name in _SECRET or not (name + value).isprintable() or size_with > HEADERS_BYTES_MAX:
            continue
        if len(found) == HEADERS_MAX:
            break
        found[name], size = value, size_with
    return found
