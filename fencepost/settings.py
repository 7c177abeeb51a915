"""Settings: `FENCEPOST_*` variables, over a TOML file, over defaults.

    FENCEPOST_NATS_URL=nats://nats:4222 FENCEPOST_STEP_SLOTS=16 python service.py    # with `Node(app)` in it

    # the file that FENCEPOST_CONFIG names, else fencepost.toml in the current folder; names in lower case
    nats_url = "nats://nats:4222"
    step_slots = 16
    [dev]                       # for `fencepost dev`, not read here

What is unknown or wrong is refused before anything starts: one sentence each, with the name as it was given.
"""

from __future__ import annotations

import difflib
import os
import re
import socket
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, InitSettingsSource, NoDecode, SettingsConfigDict

from fencepost.actors import durations

from .errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic_core import ErrorDetails
    from pydantic_settings import PydanticBaseSettingsSource

PREFIX: Final = "FENCEPOST_"
FILE: Final = "fencepost.toml"
SQLITE: Final = "sqlite:///"
POSTGRES: Final = ("postgres://", "postgresql://")
MEMORY: Final = ":memory:"
URLS: Final = frozenset({"nats_url", "database_url", "world"})
"""Settings that may hold a password, which nothing of ours shows."""
FOR_OTHERS: Final = frozenset({"dev"})
"""Tables of the file that are not settings."""
ALLOWED: Final = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "a text",
    "string_pattern_mismatch": "1 to 32 letters, digits, '_' or '-', beginning with a letter or digit",
}
"""What a value must be, by pydantic's name of the problem."""


class Settings(BaseSettings):
    """All settings of a node and of a client. `Settings.load()` reads them."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, env_ignore_empty=True, use_attribute_docstrings=True
    )

    config: Path | None = None
    """The TOML file; without it `fencepost.toml` of the current folder, if there is one."""
    nats_url: str = ""
    """Where NATS is, several separated by commas; nats://localhost:4222 when nothing says otherwise."""
    nats_creds: Path | None = None
    """The credentials file for NATS."""
    nats_inbox_prefix: str = "_INBOX"
    """Where answers from NATS arrive: with `_INBOX_node` or `_INBOX_client` a role can be kept from others' answers."""
    namespace: str = Field("default", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")
    """One world and its subjects; nothing is shared between namespaces."""
    database_url: str = ""
    """Where Postgres is: `postgres://user:password@host:5432/database`."""
    world: str = "auto"
    """The store: `postgres://…`, `sqlite:///path`, `sqlite:////absolute/path`, `sqlite:///:memory:`; auto: the Postgres
    of DATABASE_URL, else .fencepost/world.db."""
    bus: Literal["auto", "inprocess", "nats"] = "auto"
    """What carries messages; auto: NATS when NATS_URL is set, else inside the process."""
    node_name: str = Field(default_factory=socket.gethostname, min_length=1)
    """What the node calls itself in logs and lists."""
    queues: Annotated[frozenset[str], NoDecode] = frozenset({"default"})
    """The queues whose steps it runs, separated by commas."""
    steps_only: bool = False
    """Run steps of its queues for other nodes, and no workflows."""
    dispatch: Literal["auto", "bus"] = "auto"
    """auto: a step runs on the node of its run when there is a free slot; bus: every step is offered to all nodes."""
    run_ahead: bool = True
    """Record a result and what the workflow does next in one commit, where nothing can come in between."""
    step_slots: int = Field(64, ge=1)
    """How many steps run at a time."""
    threads: int = Field(32, ge=1)
    """How many steps that are plain functions run at a time."""
    max_live_runs: int = Field(1000, ge=1)
    """How many runs keep their coroutine in memory; more are put to sleep as soon as they wait."""
    grace: float = Field(5.0, ge=0)
    """How long steps may go on when the node stops: seconds, or a text such as 30s."""
    lease: float = Field(10.0, ge=2)
    """How long a node of a Postgres world counts as alive without being renewed: seconds, or a text such as 30s."""
    loop_dead_after: float = Field(10.0, ge=3)
    """How long a node may give no sign before `fencepost node` starts another: seconds, or a text such as 30s."""
    wait: bool = False
    """Let `fencepost node` wait for a store or a NATS that cannot be reached yet, instead of ending."""
    standby: bool = True
    """Let `fencepost node` keep a second process that has imported what a node needs: a restart takes a second less."""
    shadow: bool = False
    """Replay every tick in a second coroutine and compare. `fencepost dev` does unless this says no."""
    log_format: Literal["auto", "console", "json"] = "auto"
    """auto: for people on a terminal, JSON lines elsewhere."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is logged."""

    @classmethod
    def load(cls, **given: Any) -> Self:
        """Read the settings; what is `given` here is over everything else.

        Raises:
            SettingsError: with every problem that was found.
        """
        unknown = list(_unknown_variables(os.environ))
        try:
            settings = cls(**given)
        except ValidationError as error:
            problems = [_sentence(each, given) for each in error.errors(include_url=False)]
            raise SettingsError([*unknown, *dict.fromkeys(problems)]) from None
        if unknown:
            raise SettingsError(unknown)
        return settings

    @classmethod
    def settings_customise_sources(  # noqa: D102  (pydantic's)
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  (pydantic's)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  (pydantic's)
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        given = {**env_settings(), **init_settings()}
        return init_settings, env_settings, InitSettingsSource(settings_cls, read_file(given.get("config")))

    # ---- what the values mean

    @field_validator("queues", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        if isinstance(value, str):
            value = [name.strip() for name in value.split(",") if name.strip()]
        if not value:
            raise ValueError("at least one queue")
        return value

    @field_validator("grace", "lease", "loop_dead_after", mode="before")
    @classmethod
    def _seconds(cls, value: object) -> float:
        return durations.seconds(value)

    @field_validator("log_format", "log_level", "bus", "dispatch", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @field_validator("nats_inbox_prefix")
    @classmethod
    def _inbox(cls, value: str) -> str:
        if not re.fullmatch(r"_INBOX(_[A-Za-z0-9_-]+)?", value):
            raise ValueError("_INBOX, or _INBOX_ and letters, digits, '_' or '-'")
        return value

    @field_validator("world")
    @classmethod
    def _known_world(cls, value: str) -> str:
        if value.startswith(POSTGRES):
            return _usable_database(value)
        if value != "auto" and not (value.startswith(SQLITE) and len(value) > len(SQLITE)):
            raise ValueError("auto, postgres://user@host/database or sqlite:///path")
        return value

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, value: str) -> str:
        return _usable_database(value) if value else value

    @property
    def postgres_url(self) -> str:
        """Where the Postgres world is; empty when the world is another."""
        if self.world.startswith(POSTGRES):
            return self.world
        return self.database_url if self.world == "auto" else ""

    @property
    def world_path(self) -> Path | None:
        """The file of the SQLite world, None for a world in memory."""
        if self.world == "auto":
            return Path(".fencepost", "world.db")
        path = self.world.removeprefix(SQLITE)
        return None if path == MEMORY else Path(path)

    @property
    def nats_servers(self) -> str:
        """Where NATS is, with the default filled in."""
        return self.nats_url or "nats://localhost:4222"

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Show everything but passwords."""
        for name, value in super().__repr_args__():
            yield name, redacted(str(value)) if name in URLS else value


def read_file(named: str | Path | None) -> dict[str, Any]:
    """Return what the settings file says, without the tables that are for others.

    Raises:
        SettingsError: it is named and not there, or is no TOML.
    """
    path = Path(named or FILE)
    if named is None and not path.is_file():
        return {}
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError([f"the settings file {path} cannot be read: {error.strerror}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError([f"the settings file {path} is not TOML: {error}"]) from error
    return {name: value for name, value in found.items() if name not in FOR_OTHERS}


def redacted(text: str) -> str:
    """Return a text without the passwords of the URLs and connection strings in it."""
    return re.sub(
        r"((?:ssl)?password\s*=\s*)[^&\s]+", r"\1…", re.sub(r"(://[^:@/\s]*):\S*?@(?![^,\s]*@)", r"\1:…@", text)
    )


def _usable_database(url: str) -> str:
    """Return the URL of a database, or raise ValueError with what it must be."""
    if not url.startswith(POSTGRES):
        raise ValueError("postgres://user@host:5432/database")
    try:
        port, name = urlsplit(url).port, urlsplit(url).path.strip("/")
    except ValueError as error:
        raise ValueError("postgres://user@host:5432/database, with a number as its port") from error
    if port == 0 or not name:
        raise ValueError("postgres://user@host:5432/database, with the name of the database")
    return url


# ---- sentences


def _unknown_variables(environ: Iterable[str]) -> Iterable[str]:
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    for name in sorted(environ):
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            yield f"{name} is no setting: {_nearest(name.upper(), known, PREFIX)}"


def _nearest(name: str, known: list[str], prefix: str = "") -> str:
    """Name what was meant, or all there is. The prefix all share would make any two of them alike."""
    near = difflib.get_close_matches(name.removeprefix(prefix), [one.removeprefix(prefix) for one in known], n=1)
    return f"did you mean {prefix}{near[0]}?" if near else f"there are {', '.join(known)}"


def _sentence(error: ErrorDetails, given: Mapping[str, Any]) -> str:
    name = str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        source = "is no setting" if name in given else f"in {_file_name(given)} is no setting"
        return f"{name} {source}: {_nearest(name, list(Settings.model_fields))}"
    return f"{_origin(name, error['input'], given)}: it must be {_allowed(error)}"


def _origin(name: str, value: object, given: Mapping[str, Any]) -> str:
    variables = {variable.upper(): variable for variable in os.environ}
    variable = variables.get(PREFIX + name.upper())
    if name in given:
        return f"{name}={_shown(value)} is wrong"
    if variable and os.environ[variable]:
        return f"{variable}={_shown(os.environ[variable])} is wrong"
    return f"{name} = {_shown(value)} in {_file_name(given)} is wrong"


def _file_name(given: Mapping[str, Any]) -> str:
    return str(given.get("config") or os.environ.get(f"{PREFIX}CONFIG") or FILE)


def _shown(value: object) -> str:
    text = redacted(str(value))
    return repr(text if len(text) <= 60 else f"{text[:57]}…")  # noqa: PLR2004  (half a line)


def _allowed(error: ErrorDetails) -> str:
    limits: dict[str, Any] = error.get("ctx") or {}
    match error["type"]:
        case "literal_error":
            return str(limits["expected"]).replace("'", "")
        case "greater_than_equal":
            return f"{limits['ge']:g} or more"
        case "value_error":
            return str(limits["error"])
        case kind:
            return ALLOWED.get(kind) or error["msg"][0].lower() + error["msg"][1:]
