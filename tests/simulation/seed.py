"""One seed from its number to its verdict."""

from __future__ import annotations

import contextlib
import gc
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import structlog

from fencepost.world import events as ev
from fencepost.world.folding import decided_after
from tests.simulation.checkers import Seen, broken, the_dead_do_not_ask
from tests.simulation.cluster import Cluster
from tests.simulation.fleet import Fleet
from tests.simulation.hook_checkers import a_token_has_one_owner, nothing_comes_from_nowhere, what_was_accepted_is_there
from tests.simulation.ledger import present
from tests.simulation.looks import Looks
from tests.simulation.loop import NothingToDo
from tests.simulation.plan import draw
from tests.simulation.replay import replays_to_the_same_end
from tests.simulation.rest import at_rest
from tests.simulation.variants import VARIANTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.plan import Plan
    from tests.simulation.world import Commit

BUGS = {
    "actor failed",
    "step could not be executed",
    "an outcome could not be recorded",
    "a run could not be moved",
    "a service of the node failed and begins again",
}
"""What the actors log when they meet something they did not foresee."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a seed. `trace` is a digest of all that happened."""

    seed: int
    variant: str
    broken: tuple[str, ...]
    lines: tuple[tuple[float, str, str | Commit], ...]
    trace: str
    figures: dict[str, int]


def simulate(seed: int, variant: str = "", bend: Callable[[Plan], None] = lambda _: None) -> Outcome:
    """Live through a seed and judge it. `bend` may change what it has in store."""
    plan = draw(seed)
    bend(plan)
    cluster = (Fleet if plan.together else Cluster)(seed, plan, VARIANTS[variant])
    looks = Looks(cluster.world, cluster.plan.skew_s)
    cluster.world.looks.append(looks.look)
    wrong: list[str] = []
    with present(cluster.ledger), _logged_into(cluster, wrong), _collected_later():
        try:
            with cluster.variant.in_force():
                cluster.loop.run(cluster.live())
        except NothingToDo as why:
            wrong.append(str(why))
        logs = _logs(cluster)
        wrong += [*looks.broken, *_judged(cluster, logs), *cluster.loop.failures()]
        verdict = tuple(wrong)
        with contextlib.suppress(Exception):
            cluster.close()
    lines = tuple(cluster.world.history.lines)
    return Outcome(seed, variant, verdict, lines, _digest(lines, logs), _figures(cluster, logs))


def _logs(cluster: Cluster) -> dict[str, list[ev.Event]]:
    core = cluster.world.core
    rows = core.connection.execute("SELECT run_id FROM runs ORDER BY run_id")
    return {row[0]: list(core.more(row[0], 0, 1_000_000)) for row in rows.fetchall()}


# ---- the verdict


def _judged(cluster: Cluster, logs: dict[str, list[ev.Event]]) -> Iterator[str]:
    yield from cluster.ledger.twice
    yield from _stalled(cluster)
    yield from the_dead_do_not_ask(cluster.world.history.commits)
    yield from _judged_mail(cluster, logs)
    if isinstance(cluster, Fleet):
        yield from at_rest(cluster)
    for run_id, log in logs.items():
        flow = cluster.run_ids[run_id].flow
        seen = _seen(cluster, run_id, log)
        for what in broken(seen):
            yield f"{run_id} {flow.name}: {what}"
        if isinstance(log[-1].body, ev.TERMINAL):
            for what in replays_to_the_same_end(flow, run_id, log, _decided(seen)):
                yield f"{run_id} {flow.name}: {what}"
        else:
            yield f"{run_id} {flow.name} has not ended"
    repairs = sum(node.sweeper.repairs for node in cluster.nodes)
    if repairs and not cluster.plan.loses_bells:
        yield f"{repairs} repairs by the sweeper without any fault"


def _judged_mail(cluster: Cluster, logs: dict[str, list[ev.Event]]) -> Iterator[str]:
    mail = cluster.mail
    for law, found in (
        (a_token_has_one_owner, a_token_has_one_owner(cluster.world.history.commits, mail.lost_hooks)),
        (what_was_accepted_is_there, what_was_accepted_is_there(mail.book, logs, mail.lost)),
        (nothing_comes_from_nowhere, nothing_comes_from_nowhere(mail.put, logs)),
    ):
        for what in found:
            yield f"{law.__name__}: {what}"


def _stalled(cluster: Cluster) -> Iterator[str]:
    for run_id, why in cluster.world.core.connection.execute("SELECT run_id, stalled FROM runs WHERE stalled <> ''"):
        yield f"{run_id} stalled: {why}"


def _seen(cluster: Cluster, run_id: str, log: list[ev.Event]) -> Seen:
    commits = [c for c in cluster.world.history.commits if getattr(c.what, "run_id", "") == run_id]
    begun = {token: body for token, body in cluster.ledger.begun.items() if body.run_id == run_id}
    return Seen(run_id, log, commits, begun, cluster.plan.skew_s, cluster.ledger.forgiven)


def _decided(seen: Seen) -> int:
    """Return how far the last batch but one has decided."""
    decided = [0]
    for batch, answer, _ in seen.batches:
        if batch.fence is not None:
            decided.append(decided_after(batch, answer.first_seq - 1, decided[-1]))
    return max(decided[:-1], default=0)


# ---- around it


@contextmanager
def _logged_into(cluster: Cluster, wrong: list[str]) -> Iterator[None]:
    """Take what the actors log into the history; what they did not foresee is a failure."""

    def take(_logger: Any, level: str, fields: dict[str, Any]) -> Any:
        event = str(fields.pop("event", ""))
        error = fields.pop("exc_info", None)
        if event in BUGS:
            import sys  # noqa: PLC0415  (only then)
            import traceback  # noqa: PLC0415  (only then)

            wrong.append(f"{event}: {fields} {''.join(traceback.format_exception(sys.exc_info()[1]))}")
        if level != "debug" or event == "append refused":
            cluster.note(f"  log {level}: {event} {fields or ''}{' ' + repr(error) if error else ''}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[take], wrapper_class=structlog.BoundLogger, cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)


@contextmanager
def _collected_later() -> Iterator[None]:
    """Keep the collector away: a coroutine of a dead process must not be closed in the middle of a seed."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _digest(lines: tuple[tuple[float, str, str | Commit], ...], logs: dict[str, list[ev.Event]]) -> str:
    digest = blake2b(digest_size=12)
    for at_s, who, what in lines:
        digest.update(f"{at_s!r} {who} {what if isinstance(what, str) else what.method}".encode())
    for log in logs.values():
        for event in log:
            digest.update(f"{event.seq} {event.tick} {event.at}".encode() + ev.encode_body(event.body))
    return digest.hexdigest()


def _figures(cluster: Cluster, logs: dict[str, list[ev.Event]]) -> dict[str, int]:
    bodies = [event.body for log in logs.values() for event in log]
    return {
        "runs": len(logs),
        "events": len(bodies),
        "kills": len(cluster.dead),
        "bodies": len(cluster.ledger.begun),
        "losses": sum(isinstance(body, ev.StepRetrying) and body.lost > 0 for body in bodies),
        "terminated": sum(isinstance(body, ev.RunTerminated) for body in bodies),
        "handles": cluster.loop.handles,
        "virtual_s": int(cluster.loop.now_s),
        "repairs": sum(node.sweeper.repairs for node in cluster.nodes),
        "shared": int(isinstance(cluster, Fleet)),
        "claimed": sum(commit.method == "claim" for commit in cluster.world.history.commits),
        "lapsed": cluster.world.lapsed,
        "hooks": sum(isinstance(body, ev.HookCreated) for body in bodies),
        "received": sum(isinstance(body, ev.HookReceived) for body in bodies),
        "conflicts": sum(isinstance(body, ev.HookConflict) for body in bodies),
        "sent_again": sum(told.answer == "repeated" for told in cluster.mail.book),
        "refused": sum(told.answer in {"HookNotFound", "HookFull"} for told in cluster.mail.book),
    }
