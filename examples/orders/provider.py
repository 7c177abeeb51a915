"""A small payment provider that misbehaves as real ones do, and remembers every charge.

It answers 500, answers too late, says 429, and cuts the connection after it took the money. What it does depends
on the card (`tok_<kind>_1234`) and on how often it was asked, so every run meets the same trouble. The ledger is
durable and goes by idempotency key: the same key again gets the first answer, another key is another charge.

    POST /charges · /shipments · /notifications      with `Idempotency-Key` and a JSON object
    GET  /ledger · /health
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import socket
import sqlite3
import sys
import threading
import time
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE: Final = Path(".fencepost")
DEFAULT_PORT: Final = 8787
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
KINDS: Final = ("charges", "shipments", "notifications")

Mood = Literal["fine", "error", "busy", "slow", "cut", "declined"]
CARDS: Final[dict[str, tuple[Mood, ...]]] = {
    "flaky": ("error", "error", "error"),
    "busy": ("busy", "busy"),
    "slow": ("slow",),
    "cut": ("cut",),
}
CARRIERS: Final[tuple[tuple[Mood, ...], ...]] = (("error",), ("cut",), ("busy",), *[()] * 13)
"""What shipments and notifications meet: one of sixteen, by the order's hash."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What to answer, and how."""

    status: int
    body: dict[str, Any]
    mood: Mood = "fine"


class Ledger:
    """Every charge, shipment and notification by key: durable before it is answered, one transaction a request."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        self._db.executescript("""
            pragma journal_mode = wal;
            pragma synchronous = full;
            create table if not exists asked (kind, key, times integer, primary key (kind, key)) without rowid;
            create table if not exists entry (kind, key, request, answer, repeated integer default 0,
                                              primary key (kind, key));
        """)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._db:
            self._db.execute("begin immediate")
            yield self._db

    def ask(self, kind: str, key: str, request: dict[str, Any]) -> Reply:
        """Answer one request: by the entry of its key, by the mood of the moment, or by a new entry."""
        with self._transaction() as db:
            db.execute("insert into asked values (?, ?, 1) on conflict do update set times = times + 1", (kind, key))
            (times,) = db.execute("select times from asked where kind = ? and key = ?", (kind, key)).fetchone()
            found = db.execute("select request, answer from entry where kind = ? and key = ?", (kind, key)).fetchone()
            if found:
                return _again(db, (kind, key), request, *found)
            mood = mood_of(kind, request, times)
            if mood in REFUSALS:
                return REFUSALS[mood]
            return _enter(db, (kind, key), request, mood)

    def everything(self) -> dict[str, list[dict[str, Any]]]:
        """Return all entries by kind, in the order they were made."""
        query = """select kind, key, request, repeated, times from entry join asked using (kind, key)
                   order by entry.rowid"""
        ledger: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
        with self._transaction() as db:
            for kind, key, request, repeated, times in db.execute(query):
                ledger[kind].append({**json.loads(request), "key": key, "asked": times, "repeated": repeated})
        return ledger


REFUSALS: Final[dict[Mood, Reply]] = {
    "error": Reply(500, {"error": "something went wrong here, try again"}),
    "busy": Reply(429, {"error": "too many requests"}, "busy"),
    "declined": Reply(402, {"error": "the card was declined: insufficient funds"}),
}


def _again(db: sqlite3.Connection, name: tuple[str, str], request: dict[str, Any], first: str, answer: str) -> Reply:
    if json.loads(first) != request:
        return Reply(409, {"error": f"key {name[1]} was used for another request"})
    db.execute("update entry set repeated = repeated + 1 where kind = ? and key = ?", name)
    return Reply(200, json.loads(answer))


def _enter(db: sqlite3.Connection, name: tuple[str, str], request: dict[str, Any], mood: Mood) -> Reply:
    number = hashlib.sha256(" ".join(name).encode()).hexdigest()[:12]
    answer = {"id": f"{name[0][:2]}_{number}", "order": request["order"]}
    insert = "insert into entry (kind, key, request, answer) values (?, ?, ?, ?)"
    db.execute(insert, (*name, json.dumps(request), json.dumps(answer)))
    return Reply(201, answer, mood)


def mood_of(kind: str, request: dict[str, Any], times: int) -> Mood:
    """Return how the provider takes this request, asked so many times."""
    if kind == "charges":
        card = request["card"].split("_")[1:2]
        if card == ["declined"]:
            return "declined"
        script = CARDS.get("".join(card), ())
    else:
        script = CARRIERS[hashlib.sha256(f"{kind} {request['order']}".encode()).digest()[0] % len(CARRIERS)]
    return script[times - 1] if times <= len(script) else "fine"


def flaw_of(kind: str, request: Any) -> str:
    """Return what is wrong with a request, or nothing."""
    if not isinstance(request, dict) or not _is_text(request.get("order")):
        return "a JSON object with an order is needed"
    if kind == "charges" and not all(_is_text(request.get(field)) for field in ("amount", "currency", "card")):
        return "a charge needs amount, currency and card, each as text"
    return "" if kind != "charges" or _is_positive(request["amount"]) else "the amount must be above zero"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_positive(text: str) -> bool:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        return False
    return amount.is_finite() and amount > 0


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Provider

    def do_GET(self) -> None:
        """Serve the ledger, and say that we live."""
        match self.path:
            case "/ledger":
                self._answer(Reply(200, self.server.ledger.everything()))
            case "/health":
                self._answer(Reply(200, {"ok": True}))
            case _:
                self._answer(Reply(404, {"error": "GET /ledger or /health"}))

    def do_POST(self) -> None:
        """Charge, ship or notify."""
        reply = self._asked()
        if reply.mood == "slow":
            time.sleep(self.server.slow_s)
        if reply.mood == "cut":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._answer(reply)

    def _asked(self) -> Reply:
        kind, key = self.path.removeprefix("/"), self.headers.get("Idempotency-Key", "")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            return Reply(413, {"error": f"send a Content-Length of at most {BODY_BYTES_MAX}"})
        body = self.rfile.read(int(length))
        if kind not in KINDS:
            return Reply(404, {"error": f"POST /{', /'.join(KINDS)}"})
        try:
            request = json.loads(body)
        except ValueError:
            return Reply(400, {"error": "the body is no JSON"})
        flaw = flaw_of(kind, request) if key else "the header Idempotency-Key is missing"
        return Reply(400, {"error": flaw}) if flaw else self.server.ledger.ask(kind, key, request)

    def _answer(self, reply: Reply) -> None:
        body = json.dumps(reply.body).encode()
        with contextlib.suppress(ConnectionError):  # whoever asked may have gone
            self.send_response(HTTPStatus(reply.status))
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if reply.mood == "busy":
                self.send_header("Retry-After", "1")
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  named by the base class
        """Say nothing: three lines an order would bury what matters."""


class Provider(ThreadingHTTPServer):
    """The server with its ledger."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int, ledger: Ledger, slow_s: float) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.ledger = ledger
        self.slow_s = slow_s

    def handle_error(self, request: object, client_address: object) -> None:
        """Pass over connections that broke: clients are killed here all the time. Report the rest."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # passed on as it came


def bound(args: argparse.Namespace, ledger: Ledger) -> Provider:
    """Return a server on the asked port; without one on the last port, the default one, or any that is free."""
    asked = args.port
    last = args.port_file.read_text() if args.port_file.exists() else ""
    ports = [asked] if asked is not None else [int(last) if last.isdecimal() else DEFAULT_PORT, DEFAULT_PORT, 0]
    for port in ports[:-1]:
        with contextlib.suppress(OSError, OverflowError):
            return Provider(port, ledger, args.slow)
    return Provider(ports[-1], ledger, args.slow)


def arguments() -> argparse.Namespace:
    """Return the settings: options first, then the environment."""
    ledger = Path(os.environ.get("PROVIDER_LEDGER", STATE / "provider.db"))
    port = os.environ.get("PROVIDER_PORT") or urlsplit(os.environ.get("PROVIDER_URL", "")).port
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=port, help="0 is any free one (default: the last, 8787, any)")
    parser.add_argument("--ledger", type=Path, default=ledger)
    parser.add_argument("--port-file", type=Path, help="where to write the port (default: beside the ledger)")
    parser.add_argument("--slow", type=float, default=4.0, metavar="SECONDS", help="how late a slow answer comes")
    args = parser.parse_args()
    args.port_file = args.port_file or args.ledger.with_name("provider.port")
    return args


def main() -> int:
    """Serve until killed."""
    args = arguments()
    try:
        server = bound(args, Ledger(args.ledger))
    except (OSError, OverflowError, sqlite3.Error) as error:
        print(f"provider: cannot start (port {args.port}, ledger {args.ledger}): {error}", file=sys.stderr)
        return 2
    fresh = args.port_file.with_suffix(f".{os.getpid()}")
    fresh.write_text(str(server.server_port))
    fresh.replace(args.port_file)  # whole or not at all: others read it at any moment
    print(f"provider: http://127.0.0.1:{server.server_port}, ledger {args.ledger}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
