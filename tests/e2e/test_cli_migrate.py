"""`fencepost migrate`, and what `fencepost doctor` says of Postgres."""

import asyncio
import contextlib
import json

import asyncpg
import pytest
from nats import connect

from fencepost.bus import JetStreamBus, Offering
from fencepost.cli.check import clock_check
from fencepost.world import migrate
from tests.e2e.command import fencepost, free_port

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def namespace(tmp_path):
    return f"m{abs(hash(tmp_path)) % 10**9}"


@pytest.fixture
def run(tmp_path, nats, postgres, namespace):
    """Runs a command to its end."""
    around = {
        "FENCEPOST_NATS_URL": nats.url,
        "FENCEPOST_DATABASE_URL": postgres.url,
        "FENCEPOST_NAMESPACE": namespace,
    }
    return lambda *words, **more: fencepost(*words, folder=tmp_path, **{**around, **more})


@pytest.fixture
def doctor(run):
    """Returns the exit code of a doctor and its checks by name."""

    def asked(**more):
        done = run("doctor", "--json", **more)
        assert done.stdout, done.stderr
        return done.returncode, {check["what"]: check for check in map(json.loads, done.stdout.splitlines())}

    return asked


@contextlib.contextmanager
def setting(postgres, name, value):
    """Let the database have a setting meanwhile."""

    async def execute(sql):
        connection = await asyncpg.connect(postgres.url)
        await connection.execute(sql)
        await connection.close()

    asyncio.run(execute(f"ALTER DATABASE postgres SET {name} = '{value}'"))
    try:
        yield
    finally:
        asyncio.run(execute(f"ALTER DATABASE postgres RESET {name}"))


def test_it_makes_a_namespace_once_and_says_so(run, namespace):
    would, does, did = run("migrate", "--dry-run"), run("migrate", "--json"), run("migrate")

    assert [done.returncode for done in (would, does, did)] == [0, 0, 0], would.stderr + does.stderr + did.stderr
    told = json.loads(does.stdout)
    assert f"namespace {namespace} in postgresql://postgres:…@127.0.0.1:" in would.stdout
    assert f"would get version {told['schema']} (applied 0001" in would.stdout
    assert (told["namespace"], told["dry_run"], told["applied"][0]) == (namespace, False, 1)
    assert f"has version {told['schema']} already: nothing to do" in did.stdout


def test_two_namespaces_share_a_database_and_nothing_else(run):
    first, second = run("migrate", "--json"), run("migrate", "--json", "--namespace", "another")

    assert json.loads(first.stdout)["applied"] == json.loads(second.stdout)["applied"] != []


def test_without_postgres_there_is_nothing_to_migrate(run):
    done = run("migrate", FENCEPOST_DATABASE_URL="")

    assert done.returncode == 2
    assert "set FENCEPOST_DATABASE_URL" in done.stderr


def test_a_database_that_does_not_answer_or_does_not_exist_is_one_sentence_without_the_password(run, postgres):
    port = free_port()

    nobody = run("migrate", FENCEPOST_DATABASE_URL=f"postgres://me:secret@127.0.0.1:{port}/shop")
    nothing = run("migrate", FENCEPOST_DATABASE_URL=postgres.url.replace("/postgres", "/no_such"))

    assert nobody.returncode == 3
    assert nothing.returncode in {1, 3}
    for done in (nobody, nothing):
        assert done.stderr.count("\n") == 1
        assert "secret" not in done.stderr
        assert postgres.password not in done.stderr


def test_doctor_names_a_schema_that_is_missing_and_finds_it_when_it_is_there(doctor, run):
    before, missing = doctor()
    run("migrate")
    _, there = doctor()

    assert before == 3  # no node answers either
    assert (missing["postgres"]["state"], there["postgres"]["state"]) == ("bad", "ok")
    assert "run `fencepost migrate`" in missing["postgres"]["found"]
    assert there["postgres clock"]["state"] == "ok"


def test_doctor_warns_of_a_database_that_forgets(doctor, run, postgres):
    run("migrate")

    with setting(postgres, "synchronous_commit", "off"):
        _, checks = doctor()

    assert checks["postgres settings"]["state"] == "warn"
    assert "synchronous_commit" in checks["postgres settings"]["found"]


def test_doctor_tells_a_postgres_that_is_away(doctor):
    code, checks = doctor(FENCEPOST_DATABASE_URL=f"postgres://me:secret@127.0.0.1:{free_port()}/shop")

    assert code == 3
    assert checks["postgres"]["state"] == "bad"
    assert "secret" not in str(checks)


def test_doctor_names_a_queue_that_nobody_serves(doctor, nats, postgres, namespace):
    asyncio.run(migrate(postgres.url, namespace))

    async def offered():
        bus, client = JetStreamBus(nats.url, namespace), await connect(nats.url)
        await bus.open()
        await bus.offer(Offering("gpu", "run_01ARZ3NDEKTSV4RRFFQ69G5FAV", "0.1", "shop"))
        stored = f"FP_{namespace}_STEP_gpu", 1
        # Offering does not wait for the store.
        while stored not in [(one.config.name, one.state.messages) for one in await client.jetstream().streams_info()]:
            pass
        await bus.close()
        await client.close()

    asyncio.run(offered())
    _, checks = doctor()

    assert checks[f"stream FP_{namespace}_STEP_gpu"]["state"] == "ok"
    assert checks["queue gpu"]["found"] == "1 steps wait and no node asks for them"
    assert "FENCEPOST_QUEUES=gpu" in checks["queue gpu"]["todo"]


def test_a_clock_that_is_far_off_is_warned_about():
    assert clock_check("clock", "the world's", 0.5).state == "ok"
    assert clock_check("clock", "the world's", -300.0).state == "warn"
    assert "-300.000 s from here" in clock_check("clock", "the world's", -300.0).found
