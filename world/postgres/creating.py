"""New runs as `create_v1` takes them, and its verdicts as what `World.create` answers or raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import RunExists, ValueTooLarge
from ..events import RunCreated, encode_body
from ..instants import maybe_to_us
from ..partitions import partition_of
from ..records import Created, NewRun
from .flushing import columns, flushed, refusal_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .connecting import Connections
    from .statements import Statement

RUN: Final = (
    "run_ids",
    "chain_ids",
    "apps",
    "workflows",
    "partitions",
    "parents",
    "digests",
    "dues",
    "datas",
)
ATTRIBUTE: Final = ("attribute_runs", "attribute_names", "attribute_values")


@dataclass(frozen=True, slots=True)
class Creation:
    """A run to be created, and its first event as JSON."""

    new: NewRun
    line: str


def prepare(new: NewRun, max_value_bytes: int) -> Creation:
    """Return a run ready to be sent.

    Raises:
        ValueTooLarge: its first event is over the bound.
    """
    body = RunCreated(
        workflow=new.workflow,
        input=new.input,
        seed=new.seed,
        app=new.app,
        code=new.code,
        python=new.python,
        chain=new.chain_id,
        parent=new.parent,
        attributes=new.attributes,
    )
    line = encode_body(body)
    if len(line) > max_value_bytes:
        raise ValueTooLarge("run_created", len(line), max_value_bytes)
    return Creation(new, line.decode())


class Creations:
    """The outlet of the journal of new runs."""

    def __init__(self, connections: Connections, statements: Mapping[str, Statement], partitions: int) -> None:
        self._connections = connections
        self._statements = statements
        self._partitions = partitions

    async def flush(
        self,
        asks: Sequence[Creation],
        *,
        patient: bool,  # noqa: ARG002  (new ids are always waited for)
    ) -> Sequence[Created | Exception | None]:
        """See Outlet."""
        parameters = self.parameters(asks)
        return await flushed(self._connections, self._statements["create"], parameters, asks, _verdict_of)

    def parameters(self, asks: Sequence[Creation]) -> Mapping[str, Sequence[Any]]:
        """Return the parameters of `create_v1`."""
        attributes = [(ask.new.run_id, *item) for ask in asks for item in ask.new.attributes.items()]
        return columns(RUN, [self._columns(ask) for ask in asks]) | columns(ATTRIBUTE, attributes)

    async def find(self, asks: Sequence[Creation]) -> Sequence[Created | None]:
        """See Outlet. Not needed: creating is idempotent by its ids."""
        return [None for _ in asks]

    def _columns(self, ask: Creation) -> tuple[Any, ...]:
        new = ask.new
        partition = partition_of(new.run_id, self._partitions)
        ids = (new.run_id, new.chain_id, new.app, new.workflow, partition, new.parent, new.input_digest)
        return (*ids, maybe_to_us(new.due), ask.line)


def _verdict_of(ask: Creation, row: Any) -> Created | Exception | None:
    new = ask.new
    match row["verdict"]:
        case "created" | "existing" as verdict:
            return Created(row["run_id"], existing=verdict == "existing", app=row["app"])
        case "exists":
            return RunExists(new.chain_id or new.run_id, row["run_id"])
        case _:
            return refusal_of(row, new.run_id)
