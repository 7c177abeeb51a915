"""Record histories of flows that have none yet: `python tests/golden/record.py`. Existing ones are never touched."""

import json
from pathlib import Path

from fencepost.world import events as ev
from tests.actors.tape import Tape
from tests.golden import flows

HERE = Path(__file__).parent


def run_to_end(tape: Tape, name: str) -> None:
    """Answer what is asked for, last asked first, a timer now and then, so that histories are not too tame."""
    for number in range(100):
        if tape.turn.ended is not None:
            return
        steps = [o.path for o in tape.turn.ops.open.values() if o.step is not None]
        waiting = [o.inbox.token for o in tape.turn.ops.open.values() if o.inbox is not None]
        if name == "signals" and waiting and number % 3:
            made = sum(isinstance(e.body, ev.HookCreated) and e.body.token == "words" for e in tape.log)
            tape.payload(waiting[-1], f"w{number}" if waiting[-1] == "words" and made == 1 else number)
        elif name == "careful" and number == 1:
            tape.cancel("enough")
        elif name == "groups" and number == 1:
            tape.fail(steps[-1], flows.Declined("no"))
        elif not steps or (name == "deadlines" and number in {1, 3}):
            tape.fire()
        else:
            tape.step(steps[-1], number)


def record(name: str) -> list[dict]:
    tape = Tape(getattr(flows, name))
    run_to_end(tape, name)
    assert tape.turn.ended is not None, f"{name} did not end"
    return [
        {"seq": e.seq, "tick": e.tick, "at": e.at.isoformat(), "body": json.loads(ev.encode_body(e.body))}
        for e in tape.log
    ]


def main() -> None:
    names = [name for name, value in vars(flows).items() if type(value).__name__ == "Workflow"]
    for name in names:
        path = HERE / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(record(name), indent=1) + "\n")
            print("recorded", path.name)  # noqa: T201  (a command)


if __name__ == "__main__":
    main()
