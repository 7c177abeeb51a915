"""Reports a bug of ours with its traceback, and without the values of its variables: payloads stay out of logs.

structlog's console prints locals of every frame when it is given an exception; here it gets text.
"""

from __future__ import annotations

import traceback
from typing import Any

import structlog


def report(what: str, **facts: Any) -> None:
    """Log the exception being handled, with a few facts."""
    structlog.get_logger("fencepost").error(what, trace=traceback.format_exc(limit=-20), **facts)
