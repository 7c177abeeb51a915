"""Replay golden histories through the pure turn: `python tests/golden/replay.py` says what differs, exits 1 if any."""

import json
import sys
from datetime import datetime
from pathlib import Path

from fencepost.actors.replaying import Replayed, replayed
from fencepost.world import events as ev
from tests.golden import flows

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("*.json"))


def load(name: str) -> list[ev.Event]:
    lines = json.loads((HERE / f"{name}.json").read_text())
    return [
        ev.Event(
            line["seq"],
            line["tick"],
            datetime.fromisoformat(line["at"]),
            ev.decode_body(json.dumps(line["body"]).encode()),
        )
        for line in lines
    ]


def replay(name: str) -> Replayed:
    """Return what the code of today makes of a history, all of which was decided on before its end."""
    log = load(name)
    return replayed(getattr(flows, name), "run_test", log, decided=len(log) - 1)


def main() -> int:
    differing = [f"{name}: {found.why}" for name in NAMES if (found := replay(name)).state != "same"]
    count = f"{len(NAMES) - len(differing)} of {len(NAMES)} histories replay"
    print(sys.version.split(maxsplit=1)[0], count, *differing)  # noqa: T201  (a command)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
