"""Settings: `FENCEPOST_*` variables, over a TOML file, over defaults.

    FENCEPOST_NATS_URL=nats://nats:4222 FENCEPOST_STEP_SLOTS=16 fencepost node app

    # the file FENCEPOST_CONFIG names, else fencepost.toml in the current folder; names in lower case
    nats_url = "nats://nats:4222"
    step_slots = 16
    [dev]                       # read by `fencepost dev`, not here

What is unknown or wrong is refused before anything starts: one sentence each, with the name as it was given.
"""

from __future__ import annotations

import difflib
import os
import socket
import tomllib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, override

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from fencepost.actors import durations

from .errors import SettingsError
