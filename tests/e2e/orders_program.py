"""The orders example as a program: what its tests share.

An order over a NATS server's limit (1 MiB) is not in the file: what becomes of one is a matter of starting runs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders"
NATS_PAYLOAD_MAX = 1024 * 1024
KINDS = ("charges", "shipments", "notifications")


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"orders_{name}", EXAMPLE / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


make_orders, summary = load("make_orders"), load("summary")


def environment(**extra: str) -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("PROVIDER_")} | extra


class Provider:
    """The provider as a process of ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None
        self.url = ""
        self.client = httpx.Client()

    def start(self, *options: str, **extra: str) -> Provider:
        """Start it and wait for the line that says where it listens."""
        command = [sys.executable, str(EXAMPLE / "provider.py"), *options]
        self.process = subprocess.Popen(
            command, cwd=self.folder, env=environment(**extra), stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        self.url = self.process.stdout.readline().split()[1].strip(",")
        self.client = httpx.Client(base_url=self.url, limits=httpx.Limits(max_connections=16), timeout=20)
        return self

    def kill(self) -> None:
        self.client.close()
        if self.process and self.process.stdout:
            self.process.kill()
            self.process.wait(10)
            self.process.stdout.close()
            self.process = None

    def post(self, kind: str, key: str, body: Any, timeout: float = 20) -> httpx.Response:
        return self.client.post(f"/{kind}", json=body, headers={"Idempotency-Key": key}, timeout=timeout)

    def insist(self, kind: str, key: str, body: Any) -> None:
        """Ask until it is done, as a durable step would."""
        for _ in range(10):
            with contextlib.suppress(httpx.TransportError):
                if self.post(kind, key, body).is_success:
                    return
        pytest.fail(f"{kind} {key} never succeeded")

    def ledger(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = self.client.get("/ledger").json()
        return found


def charge(kind: str = "ok", amount: str = "12.50", order: str = "order-1") -> dict[str, str]:
    return {"order": order, "amount": amount, "currency": "EUR", "card": f"tok_{kind}_4242"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def run_provider(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE / "provider.py"), *options]
    return subprocess.run(
        command, cwd=folder, env=environment(), timeout=20, capture_output=True, text=True, check=False
    )


# The summary
