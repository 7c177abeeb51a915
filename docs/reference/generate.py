# ruff: noqa: INP001  (a program beside its pages, no package)
"""Writes the pages beside it from the code, so that they cannot say anything else.

python docs/reference/generate.py     # writes them anew; a test compares them with what this would write
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from pathlib import Path
from typing import Any

import msgspec
import typer
from pydantic_core import PydanticUndefined

from fencepost import Settings, errors
from fencepost.actors import api, delivering, ingress, starting
from fencepost.bus import Bell, Offering
from fencepost.bus import errors as bus_errors
from fencepost.bus.subjects import Subjects
from fencepost.cli.commands import app as cli
from fencepost.settings import PREFIX
from fencepost.world import errors as world_errors
from fencepost.world import events as ev

if typing.TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
CLASSES = ((ev.ORDERS, "order"), (ev.TERMINAL, "end"), (ev.OUTCOMES, "outcome"), (ev.QUIET, "quiet"))
ELSEWHERE = (ev.HookReceived, ev.CancelRequested, ev.RunTerminated)
"""What is appended from outside, by whoever asks."""


# ---- what the code does not say

MADE = "<!-- made by docs/reference/generate.py: change the code, then run it -->\n\n"
SETTINGS = f"""# Settings

Of a node and of a client: environment variables, or the same names in small letters without the prefix in a TOML file
(`fencepost.toml` of the current folder, or what `{PREFIX}CONFIG` names). What the program gives is over the
environment, and that over the file. An unknown name is an error that suggests the nearest one; an empty variable is
none. The table `[dev]` of the file belongs to `fencepost dev`. What several nodes are tuned by is in
[nodes](../guides/nodes.md).

"""
ERRORS = """# Errors

All that a user can meet are in `fencepost.errors`. What they are about are attributes; texts may change.
"""
IN_THE_STORE = """## In the store

What a `World` raises. Clients see these translated into the ones above.
"""
STEPS = """Bells and offerings carry no data: the facts are rows in the world. Each queue has a stream of its own.
"""
ON_THE_BUS = """## On the bus

What a `Bus` raises; clients see `Unavailable`, `ValueTooLarge` or `RequestRefused`.
"""
EVENTS = """# Events

A run's log: `fencepost runs events`, `run.events()`. Each has a position `seq` (1, 2, 3 … without a hole), `at`,
`type`, `op` (the path of its operation, empty for the run itself), and `tick`, empty for what came from outside.
"""
OF_EVENTS = """Orders are what code asked for; outcomes need their claim; after an end nothing follows. Unknown fields
are passed over, an unknown type is refused.
"""
SUBJECTS = """# Subjects

Here for the namespace `default`. Names of namespaces and apps are 1 to 32 letters, digits, `_` or `-`; a subject has at
most 512 bytes. [The least rights](../../deploy/nats/permissions.conf) of a node, a client and a gateway are
written in these.
"""
START = """## A start message

One JSON object. Unknown fields are refused.
"""
ENVELOPE = """`input` is the value of the workflow's one parameter; several are `kwargs`, by name. `id` makes the start
idempotent. `at` begins it later; without a zone it is UTC. `on_duplicate` counts for requests only.
"""
QUESTIONS = """## Questions

The micro service `fencepost` (`nats micro info fencepost`). A request is one JSON object, or empty; so is the answer.
A refusal has the headers `Nats-Service-Error-Code` and `Nats-Service-Error`.
"""
COMMANDS = """# Commands

`fencepost COMMAND --help` says the same. People get tables, `--json` whole data; exit codes are 0 ok, 1 a run failed or
was refused, 2 usage, 3 not reachable.
"""
HEADERS: list[tuple[str, ...]] = [
    ("`Nats-Msg-Id`", "the id, when the message has none; JetStream drops the same within two minutes"),
    (f"`{ingress.REPLY_TO}`", "where a raw start message is answered, once it is a run or a dead letter"),
]


def pages() -> dict[str, str]:
    """Return every page by its file's name."""
    written = {"settings": settings(), "errors": error_trees(), "events": events(), "subjects": subjects()}
    written["commands"] = commands()
    return {f"{name}.md": f"{MADE}{text.rstrip()}\n" for name, text in written.items()}


def table(head: str, rows: Sequence[tuple[str, ...]]) -> str:
    """Return a Markdown table; the head's columns are parted by `|`."""
    names = [name.strip() for name in head.split("|")]
    lines = [names, ["---"] * len(names), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines) + "\n"


def first_line(thing: object) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())


def code(text: object) -> str:
    """Return a text as code."""
    return f"`{text}`"


# ---- settings


def settings() -> str:
    """Return the page of the settings."""
    rows = [
        (code(PREFIX + name.upper()), _allowed(field.annotation), _default(field), " ".join(field.description.split()))
        for name, field in Settings.model_fields.items()
        if field.description
    ]
    return SETTINGS + table("variable | type | default | meaning", rows)


def _allowed(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " or ".join(map(str, arguments))
    if arguments and type(None) in arguments:
        return _allowed(next(one for one in arguments if one is not type(None)))
    names = {"str": "text", "int": "whole number", "float": "duration", "bool": "true or false", "Path": "path"}
    return names.get(getattr(annotation, "__name__", ""), "texts")


def _default(field: Any) -> str:
    if field.default_factory is not None:
        return "the host's name"
    value = field.default
    if value is PydanticUndefined or value is None or value == "":
        return ""
    return code(",".join(sorted(value)) if isinstance(value, frozenset) else _plain(value))


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- errors


def error_trees() -> str:
    """Return the page of the errors."""
    parts = [
        ERRORS,
        _tree(errors),
        table("error | is a | means | attributes", [_error(getattr(errors, name)) for name in errors.__all__]),
        IN_THE_STORE,
        _tree(world_errors),
        ON_THE_BUS,
        _tree(bus_errors),
    ]
    return "\n".join(parts)


def _tree(module: Any) -> str:
    drawn = re.search(r"^\w+Error\n.*", module.__doc__ or "", re.MULTILINE | re.DOTALL)
    assert drawn, f"{module.__name__} draws no tree at its top"
    return f"```text\n{drawn[0].rstrip()}\n```\n"


def _error(kind: type[Exception]) -> tuple[str, ...]:
    bases = ", ".join(code(base.__name__) for base in kind.__bases__)
    return code(kind.__name__), bases, first_line(kind), ", ".join(map(code, _attributes(kind)))


def _attributes(kind: type[Exception]) -> list[str]:
    """Return what the constructor keeps, the inherited ones too."""
    found: dict[str, None] = {}
    for one in reversed(kind.__mro__):
        if one.__module__.startswith("fencepost") and "__init__" in vars(one):
            found |= dict.fromkeys(re.findall(r"self\.(\w+) = ", inspect.getsource(one.__init__)))  # type: ignore[misc]
    return list(found)


# ---- events


def events() -> str:
    """Return the page of the events."""
    parts = [
        EVENTS,
        table("type | kind | what it says", [(code(_tag(body)), _kind(body), first_line(body)) for body in _bodies()]),
        OF_EVENTS,
    ]
    for body in _bodies():
        parts += [f"## `{_tag(body)}`\n", first_line(body) + "\n", *filter(None, [_fields(body)])]
    for part in (ev.Value, ev.ErrorData):
        parts += [f"## {part.__name__}\n", first_line(part) + "\n", _fields(part)]
    return "\n".join(parts)


def _bodies() -> tuple[Any, ...]:
    return typing.get_args(ev.EventBody)


def _tag(body: Any) -> str:
    return str(body.__struct_config__.tag)


def _kind(body: Any) -> str:
    kinds = [name for members, name in CLASSES if body in members]
    return ", ".join([*kinds, *(["outside"] if body in ELSEWHERE else [])]) or "result"


def _fields(struct: Any) -> str:
    hints = typing.get_type_hints(struct)
    rows = [(code(f.name), _type(hints[f.name]), _struct_default(f)) for f in msgspec.structs.fields(struct)]
    own = [row for row in rows if row[0] != "`op`"]
    return table("field | type | default", own) if own else ""


def _type(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    text = re.sub(r"\b(fencepost\.[\w.]+|typing|datetime|msgspec)\.", "", text).replace("NoneType", "None")
    return code(text.replace(" | UnsetType", "").replace("Raw", "JSON"))


def _struct_default(field: Any) -> str:
    if field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT:
        return "required"
    if field.default in (None, "", (), msgspec.UNSET, msgspec.NODEFAULT) or isinstance(field.default, msgspec.Raw):
        return ""
    return code(field.default if not isinstance(field.default, bool) else str(field.default).lower())


# ---- subjects

DELIVERY = """What `hook` takes. Of `payload` and `raw` one is given, or none for null; `raw` is a body as it came over
HTTP, in base64, and is read by its `content_type`. `delivery` makes it idempotent under the token:
"""


def subjects() -> str:
    """Return the page of subjects, streams and what can be asked."""
    names = Subjects("default")
    bell, offering = Bell(kind="run", id="RUN", partition=7, app="shop"), Offering("gpu", "RUN", "0.1", "shop")
    rows = [
        (code(names.start("WORKFLOW")), "start messages, from anyone; stream " + code(names.start_stream)),
        (code(names.api("start", "WORKFLOW")), "a start that is answered after the commit"),
        (code(names.api("ENDPOINT")), "questions; see below"),
        (code(names.wake(bell)), "bells between nodes, without data; stream " + code(names.wake_stream)),
        (code(names.offered(offering)), "a step on offer in queue `gpu`; stream " + code(names.step_stream("gpu"))),
        (code(names.news("event.RUN")), "the live feed of a run; stream " + code(names.live_stream)),
        (code(names.news("dead.KIND")), "the live feed of dead letters; the same stream"),
        (code(f"{names.root}.reply.…"), "answers to start messages, beside `_INBOX.…`, and to webhooks; in no stream"),
    ]
    return "\n".join(
        [
            SUBJECTS,
            table("subject | what", rows),
            STEPS,
            START,
            _fields(starting.Envelope),
            ENVELOPE,
            table("header | what", HEADERS),
            QUESTIONS,
            table("endpoint | answers", _endpoints()),
            "What a question about one run or letter may hold:\n",
            _fields(api.Ask),
            "What `runs` may hold:\n",
            _fields(api.AskRuns),
            DELIVERY,
            _fields(delivering.Delivery),
        ]
    )


def _endpoints() -> list[tuple[str, ...]]:
    unused: Any = None
    fields = [f.name for f in dataclasses.fields(api.Api) if f.init]
    node = api.Api(**dict.fromkeys(fields, unused))
    return [(code(f"api.{name}"), first_line(getattr(node, name))) for name in sorted(node.endpoints())]


# ---- commands


def commands() -> str:
    """Return the page of the commands."""
    return "\n".join([COMMANDS, *_described(typer.main.get_command(cli), "fencepost")])


def _described(command: Any, name: str) -> list[str]:
    """Return the parts about a command, or about those of a group."""
    inner = getattr(command, "commands", None)
    if inner is not None:
        return [part for word, one in inner.items() for part in _described(one, f"{name} {word}")]
    given = [one for one in command.params if one.param_type_name == "argument"]
    words = " ".join([name, *(str(one.metavar or one.name.upper()) for one in given)])
    rows = [(_names(one), " ".join((getattr(one, "help", "") or "").split())) for one in command.params]
    return [f"## `{words}`\n", f"{(command.help or '').strip()}\n", table("argument | meaning", rows)]


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return code(str(parameter.metavar or parameter.name.upper()).strip("[]"))
    return ", ".join(map(code, parameter.opts))


def main() -> None:
    """Write the pages."""
    for name, text in pages().items():
        (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
