"""An App: the workflows and steps of one service, and the clients its steps use."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, cast

from .define import Step, Workflow, where
from .errors import DefinitionError

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


class App:
    """What a node runs. `lifespan` is entered on the steps' loop before the node serves; steps get what it yields.

    Args:
        name: one subject token; runs and partitions are per app.
        workflows: what may be started; more may be added with `add`.
        lifespan: a function without arguments that returns an async context manager; once per process.
    """

    def __init__(
        self,
        name: str = "default",
        workflows: Iterable[Workflow[..., Any]] = (),
        *,
        lifespan: Lifespan | None = None,
    ) -> None:
        if not name or any(c in name for c in " .*>\t\r\n") or not name.isprintable():
            raise DefinitionError(f"app name {name!r} cannot be part of a subject: use letters, digits, '-' and '_'")
        self.name = name
        self.lifespan = lifespan
        self.workflows: dict[str, Workflow[..., Any]] = {}
        self.steps: dict[str, Step[..., Any]] = {}
        self.add(*workflows)

    def add(self, *declared: Workflow[..., Any] | Step[..., Any]) -> None:
        """Add workflows and steps.

        Raises:
            DefinitionError: a name is used by two functions.
        """
        for one in declared:
            known: dict[str, Any] = self.workflows if isinstance(one, Workflow) else self.steps
            other = known.setdefault(one.name, one)
            if other is not one and where(other.fn) != where(one.fn):
                raise DefinitionError(
                    f"{one.kind} name {one.name!r} is used by two functions ({where(other.fn)} and {where(one.fn)}): "
                    f'give one of them another with @{one.kind}(name="…")'
                )

    def add_from(self, names: Iterable[Any]) -> None:
        """Add every workflow and step among the values of a module."""
        self.add(*(cast("Workflow[..., Any]", value) for value in names if isinstance(value, Workflow | Step)))

    @property
    def code(self) -> str:
        """A digest of the workflows' and their neighbours' source: another one means another version was deployed.

        Neighbours are the loaded modules in the folders of the modules that declare workflows and steps, and below:
        a fix may be in a helper or a model.
        """
        declared: list[Any] = [*self.workflows.values(), *self.steps.values()]
        sources = _sources({one.fn.__module__ for one in declared})
        digests = sorted(f"{name}={workflow.code}" for name, workflow in self.workflows.items())
        digests += [hashlib.sha256(path.read_bytes()).hexdigest() for path in sources]
        return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16]


def _sources(declaring: set[str]) -> list[Path]:
    """Return the source files of modules and of their neighbours that are loaded, sorted."""
    files = {name: Path(file) for name, module in list(sys.modules.items()) if (file := _file_of(module))}
    folders = {files[name].parent for name in declaring if name in files}
    return sorted({path for path in files.values() if not folders.isdisjoint(path.parents) and path.is_file()})


def _file_of(module: Any) -> str:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) and file.endswith(".py") else ""
