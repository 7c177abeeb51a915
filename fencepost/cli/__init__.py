"""The command `fencepost`."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process."""
    from .entry import main as run  # noqa: PLC0415  (`import fencepost.cli` alone costs nothing)

    run()
