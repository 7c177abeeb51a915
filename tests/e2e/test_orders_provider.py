"""The orders example without Fencepost: its generator, its flaky provider and its summary, each as a process.

An order over a NATS server's limit (1 MiB) is not in the file: what becomes of one is a matter of starting runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Provider]:
    provider = Provider(tmp_path)
    yield provider
    provider.kill()


@pytest.fixture
def provider(stopped: Provider) -> Provider:
    return stopped.start("--port", "0", "--slow", "0")


def charge(kind: str = "ok", amount: str = "12.50", order: str = "order-1") -> dict[str, str]:
    return {"order": order, "amount": amount, "currency": "EUR", "card": f"tok_{kind}_4242"}


class TestTheOrders:
    def test_the_generator_writes_the_committed_bytes(self, tmp_path):
        program = shutil.copy(EXAMPLE / "make_orders.py", tmp_path)

        subprocess.run([sys.executable, program], check=True, timeout=30, env=environment(PYTHONHASHSEED="7"))

        assert (tmp_path / "orders.jsonl").read_bytes() == (EXAMPLE / "orders.jsonl").read_bytes()

    def test_most_lines_are_good_and_every_trouble_is_there(self):
        counted = Counter(label for label, _ in make_orders.Shop(make_orders.SEED).lines())

        assert counted.total() == 300
        assert counted["good"] >= 225
        assert set(counted) == set(summary.MEANING)

    def test_the_summary_judges_each_line_as_it_was_meant(self):
        meant = make_orders.Shop(make_orders.SEED).lines()

        judged = summary.classify((EXAMPLE / "orders.jsonl").read_bytes())

        assert [line.verdict for line in judged] == [label for label, _ in meant]

    def test_every_line_fits_a_start_message_and_some_are_huge(self):
        sizes = [len(line) for line in (EXAMPLE / "orders.jsonl").read_bytes().split(b"\n")]

        assert max(sizes) < NATS_PAYLOAD_MAX // 2
        assert sum(size > 100 * 1024 for size in sizes) == 4

    def test_the_workflow_and_the_summary_agree_on_what_is_a_good_order(self, monkeypatch):
        monkeypatch.syspath_prepend(EXAMPLE)
        app = pytest.importorskip("app", reason="the workflow needs all of fencepost", exc_type=ImportError)

        def verdict(line: Any) -> str:
            try:
                asyncio.run(app.check.fn(app.Order.model_validate_json(line.text)))
            except app.OrderRejected:
                return "rejected"
            except ValueError:
                return "invalid"
            return "good"

        judged = [line for line in summary.classify((EXAMPLE / "orders.jsonl").read_bytes()) if line.id]
        same = {"repeat": "good", "conflict": "good", "declined": "good"}
        assert [(line.number, verdict(line)) for line in judged] == [
            (line.number, same.get(line.verdict, line.verdict)) for line in judged
        ]


class TestTheProvider:
    def test_the_same_key_again_gets_the_first_answer_and_no_second_charge(self, provider):
        first = provider.post("charges", "key-1", charge())

        again = provider.post("charges", "key-1", charge())

        assert (first.status_code, again.status_code) == (201, 200)
        assert first.json() == again.json()
        assert provider.ledger()["charges"] == [{**charge(), "key": "key-1", "asked": 2, "repeated": 1}]

    def test_the_same_key_with_another_amount_is_refused(self, provider):
        provider.post("charges", "key-1", charge())

        answer = provider.post("charges", "key-1", charge(amount="99"))

        assert answer.status_code == 409
        assert [entry["amount"] for entry in provider.ledger()["charges"]] == ["12.50"]

    def test_another_key_for_the_same_order_shows_as_a_second_charge(self, provider):
        provider.post("charges", "key-1", charge())
        provider.post("charges", "key-2", charge())

        assert [entry["order"] for entry in provider.ledger()["charges"]] == ["order-1", "order-1"]

    @pytest.mark.parametrize(
        ("card", "answers"),
        [
            ("ok", [201, 200]),
            ("flaky", [500, 500, 500, 201, 200]),
            ("busy", [429, 429, 201]),
            ("slow", [201, 200]),
            ("declined", [402, 402, 402, 402, 402, 402]),
        ],
    )
    def test_each_card_meets_its_own_trouble(self, provider, card, answers):
        got = [provider.post("charges", "key-1", charge(card)) for _ in answers]

        assert [answer.status_code for answer in got] == answers
        assert all(("Retry-After" in answer.headers) == (answer.status_code == 429) for answer in got)
        assert len(provider.ledger()["charges"]) == (card != "declined")

    def test_a_cut_connection_took_the_money_all_the_same(self, provider):
        with pytest.raises(httpx.RemoteProtocolError):
            provider.post("charges", "key-1", charge("cut"))

        assert len(provider.ledger()["charges"]) == 1
        assert provider.post("charges", "key-1", charge("cut")).status_code == 200

    def test_a_slow_answer_comes_after_the_money_was_taken(self, stopped):
        provider = stopped.start("--port", "0", "--slow", "60")

        with pytest.raises(httpx.ReadTimeout):
            provider.post("charges", "key-1", charge("slow"), timeout=0.5)

        assert len(provider.ledger()["charges"]) == 1
        assert provider.post("charges", "key-1", charge("slow")).status_code == 200

    def test_shipments_and_notifications_have_ledgers_and_troubles_of_their_own(self, provider):
        for number in range(64):
            for kind in ("shipments", "notifications"):
                provider.insist(kind, f"key-{number}", {"order": f"order-{number}"})

        ledger = provider.ledger()

        assert [len(ledger[kind]) for kind in KINDS] == [0, 64, 64]
        assert any(entry["asked"] > 1 for entry in ledger["shipments"])
        assert any(entry["repeated"] for entry in ledger["notifications"])

    @pytest.mark.parametrize(
        ("path", "key", "content", "status"),
        [
            ("charges", "", b'{"order": "1"}', 400),
            ("charges", "key", b"not json", 400),
            ("charges", "key", b"", 400),
            ("charges", "key", b"[1]", 400),
            ("charges", "key", b'{"order": "1", "amount": "1", "currency": "EUR"}', 400),
            ("charges", "key", b'{"order": "1", "amount": "-1", "currency": "EUR", "card": "c"}', 400),
            ("charges", "key", b'{"order": "1", "amount": "NaN", "currency": "EUR", "card": "c"}', 400),
            ("charges", "key", b'{"order": 1, "amount": "1", "currency": "EUR", "card": "c"}', 400),
            ("charges", "key", b" " * (4 * 1024 * 1024 + 1), 413),
            ("refunds", "key", b"{}", 404),
        ],
    )
    def test_a_request_that_makes_no_sense_is_refused_and_not_recorded(self, provider, path, key, content, status):
        headers = {"Idempotency-Key": key}

        with contextlib.suppress(httpx.WriteError):  # too large: it may hang up before all was sent
            assert provider.client.post(path, content=content, headers=headers).status_code == status

        assert provider.ledger() == {kind: [] for kind in KINDS}

    def test_it_says_that_it_lives_and_knows_no_other_page(self, provider):
        assert provider.client.get("/health").json() == {"ok": True}
        assert provider.client.get("/admin").status_code == 404


class TestTheProviderDies:
    def test_what_it_answered_before_kill_9_it_still_knows(self, provider):
        answered: list[str] = []

        def pay(number: int) -> None:
            with contextlib.suppress(httpx.TransportError):
                provider.post("charges", f"key-{number}", charge(order=f"order-{number}"))
                answered.append(f"key-{number}")
            if len(answered) == 40 and provider.process:
                provider.process.kill()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(pay, range(120)))
        provider.kill()
        provider.start("--port", "0")

        keys = [entry["key"] for entry in provider.ledger()["charges"]]
        assert len(answered) >= 40
        assert set(answered) <= set(keys)
        assert len(keys) == len(set(keys))

    def test_its_troubles_go_on_where_they_were(self, provider):
        before = [provider.post("charges", "key-1", charge("flaky")).status_code for _ in range(2)]

        provider.kill()
        provider.start("--port", "0")

        after = [provider.post("charges", "key-1", charge("flaky")).status_code for _ in range(2)]
        assert before + after == [500, 500, 500, 201]

    def test_it_comes_back_on_its_last_port(self, stopped, tmp_path):
        first = stopped.start("--port", "0").url
        stopped.kill()

        assert stopped.start().url == first
        assert first.endswith(":" + (tmp_path / ".fencepost" / "provider.port").read_text())

    def test_it_moves_and_says_where_when_its_port_was_taken_meanwhile(self, stopped, tmp_path):
        first = stopped.start("--port", "0").url
        stopped.kill()

        with socket.create_server(("127.0.0.1", int(first.rsplit(":", 1)[1]))):
            moved = stopped.start().url

        assert moved != first
        assert moved.endswith(":" + (tmp_path / ".fencepost" / "provider.port").read_text())

    def test_ledger_and_port_go_where_the_environment_says(self, stopped, tmp_path):
        ledger = tmp_path / "else" / "where.db"
        port = str(free_port())

        stopped.start(PROVIDER_LEDGER=str(ledger), PROVIDER_URL=f"http://127.0.0.1:{port}")

        assert ledger.exists()
        assert ledger.with_name("provider.port").read_text() == port

    def test_a_port_that_was_asked_for_and_is_taken_is_said_in_one_sentence(self, tmp_path):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            refused = run_provider(tmp_path, "--port", port)

        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert port in refused.stderr

    def test_a_ledger_that_is_no_database_is_said_in_one_sentence_and_left_alone(self, tmp_path):
        ledger = tmp_path / "ledger.db"
        ledger.write_text("my diary " * 100)

        refused = run_provider(tmp_path, "--port", "0", "--ledger", str(ledger))

        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert "not a database" in refused.stderr
        assert ledger.read_text() == "my diary " * 100


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


def order(name: str, **fields: Any) -> dict[str, Any]:
    line = {"sku": "mug", "quantity": 2, "unit_price": 6.25}
    rest = {"customer": "Ana", "email": "ana@example.com", "card": "tok_ok_4242", "currency": "EUR"}
    return {"id": name, **rest, "lines": [line], "total": 12.5, "placed_at": "2025-11-03T09:15:00Z", **fields}


ORDERS = b"\n".join([
    json.dumps(order("good-1")).encode(),
    json.dumps(order("good-2", customer="\u0000🦊\u2028")).encode() + b"\r",
    json.dumps(order("declined", card="tok_declined_1")).encode(),
    json.dumps(order("rejected", total=13)).encode(),
    json.dumps(order("invalid", currency="EURO")).encode(),
    b'{"id": "Jos\xe9',
    json.dumps(order("good-1", customer="Somebody Else")).encode(),
    json.dumps(order("good-1")).encode(),
    b"",
    b"[1, 2]",
])  # fmt: skip


def facts_when_all_went_right(lines: list[Any]) -> dict[str, Any]:
    """What a client reports: some bad lines were refused when they were fed, others are dead letters."""
    errors = {"good": None, "declined": "CardDeclined: the card was declined", "rejected": "OrderRejected: total"}
    runs = [
        {
            "id": line.id,
            "run_id": f"run_{line.number}",
            "status": "failed" if errors[line.verdict] else "completed",
        }
        | {"error": errors[line.verdict]}
        for line in lines
        if line.verdict in errors
    ]
    refused = [line for line in lines if line.verdict in ("conflict", "garbage")]
    dead = [line for line in lines if line.verdict == "invalid"]
    return {
        "runs": runs,
        "dead": [{"reason": "does not fit", "code": "invalid_input", "body": body_of(line)} for line in dead],
        "refused": [{"line": line.number, "reason": "cannot be taken"} for line in refused],
        "fed": len(lines),
        "repeated": sum(line.verdict == "repeat" for line in lines),
    }


def body_of(line: Any) -> str:
    """A start message as a feeder sends it: an envelope around JSON, the bare text around anything else."""
    with contextlib.suppress(ValueError):
        return json.dumps({"id": line.id, "input": json.loads(line.text)})
    return str(line.text)


def pay_all(provider: Provider, lines: list[Any]) -> None:
    def pay(line: Any) -> None:
        body = {"order": line.id, "amount": str(Decimal(str(line.value["total"]))), "card": line.value["card"]}
        for kind in KINDS:
            provider.insist(kind, f"{line.number}/{kind}", {**body, "currency": line.value["currency"]})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(pay, [line for line in lines if line.verdict == "good"]))


def summarise(provider: Provider, orders: Path, facts: Any, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE / "summary.py"), "--orders", str(orders), *options]
    said = facts if isinstance(facts, str) else json.dumps(facts)
    env = environment(PROVIDER_URL=provider.url, PYTHONUTF8="1")
    return subprocess.run(
        command, input=said, env=env, timeout=40, capture_output=True, text=True, encoding="utf-8", check=False
    )


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "orders.jsonl"
    path.write_bytes(ORDERS)
    return path


@pytest.fixture
def facts(provider: Provider) -> dict[str, Any]:
    lines = summary.classify(ORDERS)
    pay_all(provider, lines)
    return facts_when_all_went_right(lines)


class TestTheSummary:
    def test_a_small_file_that_went_right_is_proved(self, provider, orders, facts):
        shown = summarise(provider, orders, facts)

        assert shown.returncode == 0, shown.stdout + shown.stderr
        assert "charged twice: 0   lost: 0   charged without an order: 0" in shown.stdout
        assert "e.g. CardDeclined: the card was declined" in shown.stdout

    def test_all_300_orders_are_proved_after_all_of_the_providers_trouble(self, provider):
        orders = EXAMPLE / "orders.jsonl"
        lines = summary.classify(orders.read_bytes())
        pay_all(provider, lines)

        shown = summarise(provider, orders, facts_when_all_went_right(lines), "--json")

        found = json.loads(shown.stdout)
        assert shown.returncode == 0, found["problems"]
        assert found["ok"]
        assert found["charged"] == found["outcomes"]["good"]["expected"]
        assert found["charged_again_and_recognised"] > 0

    def test_garbage_may_be_dead_letters_as_well_as_refused(self, provider, orders, facts):
        lines = {line.number: line for line in summary.classify(ORDERS)}
        dead = [{"reason": "no", "code": "c", "body": body_of(lines[one["line"]])} for one in facts["refused"]]

        shown = summarise(provider, orders, {**facts, "refused": [], "dead": facts["dead"] + dead})

        assert shown.returncode == 0, shown.stdout

    @pytest.mark.parametrize(
        ("kind", "entry", "said"),
        [
            ("charges", charge(order="good-1"), "2 charges under 1/charges, x"),
            ("shipments", {"order": "good-1"}, "2 shipments under"),
            ("notifications", {"order": "good-2"}, "2 notifications under"),
            ("charges", charge(order="declined"), "charges of 'declined'"),
            ("charges", charge(order="nobody's"), 'charges of "nobody\'s"'),
            ("shipments", {"order": "rejected"}, "shipments of 'rejected'"),
        ],
    )
    def test_an_entry_too_many_in_the_ledger_is_found(self, provider, orders, facts, kind, entry, said):  # noqa: PLR0917  pytest names them
        provider.insist(kind, "x", entry)

        shown = summarise(provider, orders, facts)

        assert shown.returncode == 1
        assert said in shown.stdout

    @pytest.mark.parametrize("missing", KINDS)
    def test_an_order_that_was_not_charged_shipped_or_notified_is_found(self, provider, orders, missing):
        lines = summary.classify(ORDERS)
        for line in lines[:2]:
            for kind in KINDS:
                if (line.id, kind) != ("good-2", missing):
                    provider.insist(kind, line.id, charge(order=line.id))

        shown = summarise(provider, orders, facts_when_all_went_right(lines), "--json")

        assert shown.returncode == 1
        assert json.loads(shown.stdout)["problems"] == [f"good order good-2: none of the {missing}"]

    def test_a_charge_of_another_amount_is_found(self, provider, orders):
        lines = summary.classify(ORDERS)
        for line in lines[:2]:
            for kind in KINDS:
                provider.insist(kind, line.id, charge(order=line.id, amount="12.51"))

        shown = summarise(provider, orders, facts_when_all_went_right(lines))

        assert shown.returncode == 1
        assert "order good-1: charged 12.51 EUR instead of 12.5 EUR" in shown.stdout

    @pytest.mark.parametrize(
        ("spoil", "said"),
        [
            (lambda facts: facts["runs"].pop(0), "good order good-1: no run, and no word of it"),
            (lambda facts: facts["runs"][0].update(status="running"), "good order good-1: run is running"),
            (lambda facts: facts["runs"].pop(2), "declined order declined: no run says why"),
            (lambda facts: facts["runs"][2].update(error="lost"), "declined order declined failed for another"),
            (
                lambda facts: facts["runs"][3].update(status="completed"),
                "rejected order rejected: run is completed",
            ),
            (lambda facts: facts["runs"][3].update(error=None), "rejected order rejected: run is failed, None"),
            (lambda facts: facts["dead"].pop(), "invalid line 5: no dead letter, no word of it"),
            (lambda facts: facts["dead"][0].update(reason="", code=""), "invalid line 5: no dead letter"),
            (lambda facts: facts["refused"].pop(0), "garbage line 6: no dead letter"),
            (lambda facts: facts["refused"].pop(1), "conflict line 7: no dead letter"),
            (lambda facts: facts.update(repeated=0), "1 lines repeat an order, 0 were recognised"),
        ],
    )
    def test_a_run_or_refusal_that_is_not_as_due_is_found(
        self, provider, orders, facts, spoil: Callable[[dict[str, Any]], object], said
    ):
        spoil(facts)

        shown = summarise(provider, orders, facts)

        assert shown.returncode == 1
        assert said in shown.stdout

    def test_facts_that_are_none_and_a_provider_that_is_gone_prove_nothing(self, provider, orders, facts):
        garbled = summarise(provider, orders, "no facts")
        provider.kill()
        alone = summarise(provider, orders, facts)

        assert (garbled.returncode, alone.returncode) == (1, 1)
        assert (garbled.stderr.count("\n"), alone.stderr.count("\n")) == (1, 1)
