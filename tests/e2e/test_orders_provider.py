"""The orders example without Fencepost: its generator and its flaky provider, as processes."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.e2e.orders_program import (
    EXAMPLE,
    KINDS,
    NATS_PAYLOAD_MAX,
    charge,
    environment,
    free_port,
    make_orders,
    run_provider,
    summary,
)


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
