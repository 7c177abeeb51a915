"""Where an exception was raised, as text: the user's frames, the last ones, bounded."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

FRAMES_MAX: Final = 30
TEXT_MAX: Final = 16 * 1024

_OURS: Final = str(Path(__file__).parent)


def text_of(exc: BaseException) -> str:
    """Return the frames of an exception, without ours before the user's. Never raises."""
    try:
        frames = traceback.extract_tb(exc.__traceback__, limit=-FRAMES_MAX)
        kept = _users(frames) or frames
        text = "".join(traceback.format_list(kept))
    except Exception:  # noqa: BLE001  (reading source can fail in many ways; the error matters more than its place)
        return ""
    return _last(text.encode("utf-8", "backslashreplace").decode())


def _users(frames: Iterable[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Drop what stands before the first frame that is not ours: how a step was called interests nobody."""
    kept = list(frames)
    while kept and kept[0].filename.startswith(_OURS):
        del kept[0]
    return kept


def _last(text: str) -> str:
    if len(text) <= TEXT_MAX:
        return text
    return "  …\n" + text[-TEXT_MAX:].partition("\n")[2]
