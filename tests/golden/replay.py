"""Replay golden histories through the pure turn: `python tests/golden/replay.py` says what differs, exits 1 if any."""

import json
import sys
from datetime import datetime
from pathlib import Path

from fencepost.actors.turn import Turn
from fencepost.world import events as ev
from tests.golden import flows

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("*.json"))
BODYS_OWN = ev.RunCompleted | ev.RunFailed | ev.RunCancelled


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


def replay(name: str) -> tuple[bytes, bytes]:
    """Return the end in the history, and the end the code of today comes to."""
    *log, end = load(name)
    turn = Turn(getattr(flows, name), "run_test", decided_seq=len(log))
    try:
        for event in log:
            if not isinstance(event.body, BODYS_OWN):
                turn.feed(event)
        assert turn.terminal is not None, f"{name} has not ended where its history has"
        assert turn.orders() == [turn.terminal], f"{name} asks for more than its history has"
        return shape(end.body), shape(turn.terminal)
    finally:
        turn.evict()


def shape(body: ev.EventBody) -> bytes:
    """Return a body without its traceback, whose text differs between versions of Python."""
    plain = json.loads(ev.encode_body(body))
    plain.get("error", {}).pop("traceback", None)
    return json.dumps(plain, sort_keys=True).encode()


def main() -> int:
    differing = [name for name in NAMES if len(set(replay(name))) != 1]
    count = f"{len(NAMES) - len(differing)} of {len(NAMES)} histories replay"
    print(sys.version.split(maxsplit=1)[0], count, *differing)  # noqa: T201  (a command)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
