"""The orders example without Fencepost: its summary, as a process."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.orders_program import EXAMPLE, KINDS, Provider, charge, environment, summary


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
