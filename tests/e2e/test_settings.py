"""Settings: where they come from, and one sentence for what is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost import App, Node, Settings
from fencepost.errors import SettingsError, Unavailable
from fencepost.settings import redacted
from fencepost.system import node_settings


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No variables and no file of whoever runs the tests."""
    for name in list(os.environ):
        if name.upper().startswith("FENCEPOST_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def problems(**given):
    with pytest.raises(SettingsError) as error:
        Settings.load(**given)
    return error.value.problems


EMBEDDED = """
import asyncio, structlog
from fencepost import App, Node, Settings, workflow

@workflow
async def one() -> int:
    structlog.get_logger().info("by the workflow")
    return 1

async def main():
    async with Node(App("shop", [one]), settings=Settings.load(world="sqlite:///:memory:", log_level=LEVEL)) as node:
        structlog.get_logger().info("by the program")
        print(await (await node.client().start(one)).result())
"""


def embedded(level, first=""):
    program = EMBEDDED.replace("LEVEL", repr(level)) + f"{first}\nasyncio.run(main())\n"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)


def test_an_embedded_node_logs_to_stderr_what_the_settings_say():
    usual, quiet = embedded("info"), embedded("warning")

    assert (usual.stdout, quiet.stdout) == ("1\n", "1\n")
    assert "by the program" in usual.stderr
    assert "debug" not in usual.stderr
    assert quiet.stderr == ""


def test_the_logging_of_a_program_that_set_it_up_is_left_alone():
    ran = embedded("error", "structlog.configure(processors=[structlog.processors.JSONRenderer()])")

    assert '{"event": "by the program"}' in ran.stdout
    assert ran.stderr == ""


async def test_a_second_node_on_one_file_in_one_process_is_told_so(tmp_path):
    settings = Settings.load(world=f"sqlite:///{tmp_path / 'emb.db'}")
    app = App("shop")

    async with Node(app, settings=settings):
        with pytest.raises(Unavailable, match=r"emb.db is in use by another Node of this process"):
            await Node(app, settings=settings).start()
    async with Node(app, settings=settings):
        pass


def test_without_anything_a_node_keeps_its_state_in_a_file_and_its_messages_to_itself():
    settings = Settings.load()

    assert settings.world_path == Path(".fencepost", "world.db")
    assert (settings.bus, settings.nats_servers) == ("auto", "nats://localhost:4222")
    assert settings.node_name


def test_variables_are_read_and_understood(monkeypatch):
    monkeypatch.setenv("FENCEPOST_QUEUES", "default, gpu")
    monkeypatch.setenv("FENCEPOST_STEP_SLOTS", "8")
    monkeypatch.setenv("FENCEPOST_GRACE", "1m")
    monkeypatch.setenv("FENCEPOST_SHADOW", "yes")
    monkeypatch.setenv("FENCEPOST_LOG_FORMAT", "JSON")
    monkeypatch.setenv("FENCEPOST_WORLD", "sqlite:////var/lib/shop.db")

    settings = Settings.load()

    assert settings.queues == {"default", "gpu"}
    assert (settings.step_slots, settings.grace, settings.shadow) == (8, 60.0, True)
    assert settings.log_format == "json"
    assert settings.world_path == Path("/var/lib/shop.db")


def test_a_variable_is_over_the_file_and_what_is_given_over_both(monkeypatch, tmp_path):
    (tmp_path / "fencepost.toml").write_text('namespace = "file"\nthreads = 3\nstep_slots = 4\n[dev]\nrun = []\n')
    monkeypatch.setenv("FENCEPOST_STEP_SLOTS", "5")
    monkeypatch.setenv("FENCEPOST_THREADS", "6")

    settings = Settings.load(threads=7)

    assert (settings.namespace, settings.step_slots, settings.threads) == ("file", 5, 7)


def test_a_variable_names_another_file(monkeypatch, tmp_path):
    (tmp_path / "fencepost.toml").write_text('namespace = "near"')
    (tmp_path / "far.toml").write_text('namespace = "far"')
    monkeypatch.setenv("FENCEPOST_CONFIG", "far.toml")

    assert Settings.load().namespace == "far"


def test_an_empty_variable_is_none(monkeypatch):
    monkeypatch.setenv("FENCEPOST_NATS_URL", "")

    assert Settings.load().nats_url == ""


def test_an_unknown_variable_is_an_error_that_suggests_the_nearest_name(monkeypatch):
    monkeypatch.setenv("FENCEPOST_NATS_ULR", "nats://x")

    assert problems() == ("FENCEPOST_NATS_ULR is no setting: did you mean FENCEPOST_NATS_URL?",)


def test_an_unknown_name_far_from_all_gets_the_list(monkeypatch):
    monkeypatch.setenv("FENCEPOST_QQQ", "1")

    assert "there are FENCEPOST_CONFIG, FENCEPOST_NATS_URL" in problems()[0]


def test_an_unknown_name_in_the_file_is_an_error_too(tmp_path):
    (tmp_path / "fencepost.toml").write_text("step_slot = 4")

    assert problems() == ("step_slot in fencepost.toml is no setting: did you mean step_slots?",)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("STEP_SLOTS", "many", "a whole number"),
        ("STEP_SLOTS", "0", "1 or more"),
        ("BUS", "kafka", "auto, inprocess or nats"),
        ("LOG_LEVEL", "loud", "debug, info, warning or error"),
        ("NAMESPACE", "my shop", "1 to 32 letters"),
        ("SHADOW", "maybe", "true or false"),
        ("QUEUES", " , ", "at least one queue"),
        ("GRACE", "soon", "soon"),
        ("WORLD", "world.db", "auto, postgres://user@host/database or sqlite:///path"),
        ("WORLD", "postgres://x", "with the name of the database"),
        ("DATABASE_URL", "mysql://x/shop", "postgres://user@host:5432/database"),
        ("DATABASE_URL", "postgres://x:many/shop", "with a number as its port"),
        ("DISPATCH", "never", "auto or bus"),
        ("RUN_AHEAD", "maybe", "true or false"),
        ("STEPS_ONLY", "maybe", "true or false"),
        ("LEASE", "1s", "2 or more"),
        ("LOOP_DEAD_AFTER", "1s", "3 or more"),
        ("LOOP_DEAD_AFTER", "late", "late"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(monkeypatch, name, value, allowed):
    monkeypatch.setenv(f"FENCEPOST_{name}", value)

    (sentence,) = problems()

    assert sentence.startswith(f"FENCEPOST_{name}={value!r} is wrong: it must be ")
    assert allowed in sentence


def test_postgres_is_the_world_as_soon_as_its_url_is_set(monkeypatch):
    monkeypatch.setenv("FENCEPOST_DATABASE_URL", "postgres://me:secret@db/shop")

    assert Settings.load().postgres_url == "postgres://me:secret@db/shop"
    assert Settings.load(world="sqlite:///here.db").postgres_url == ""
    assert Settings.load(world="postgresql://other/shop").postgres_url == "postgresql://other/shop"


def test_what_several_nodes_need_is_on_or_off_by_a_word(monkeypatch):
    monkeypatch.setenv("FENCEPOST_DISPATCH", "BUS")
    monkeypatch.setenv("FENCEPOST_RUN_AHEAD", "off")
    monkeypatch.setenv("FENCEPOST_LEASE", "30s")
    monkeypatch.setenv("FENCEPOST_DATABASE_URL", "postgres://db/shop")

    chosen = node_settings(Settings.load(steps_only=True))
    usual = node_settings(Settings.load(world="sqlite:///here.db", dispatch="auto", run_ahead=True))

    assert (chosen.dispatch, chosen.run_ahead, chosen.steps_only, chosen.lease_s) == ("bus", False, True, 30.0)
    assert (usual.dispatch, usual.run_ahead, usual.steps_only, usual.lease_s) == ("auto", True, False, None)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgres://me:secret@db:5432/shop", "postgres://me:…@db:5432/shop"),
        ("postgres://me:se:c@re/t@db/shop?sslpassword=secret&x=1", "postgres://me:…@db/shop?sslpassword=…&x=1"),
        ("host=db password=secret user=me", "host=db password=… user=me"),
        ("nats://a:secret@x:4222,nats://b:secret@y", "nats://a:…@x:4222,nats://b:…@y"),
        ("postgres://me@db/shop", "postgres://me@db/shop"),
    ],
)
def test_a_password_is_never_shown(given, shown):
    assert redacted(given) == shown


def test_neither_a_problem_nor_the_settings_themselves_show_a_password():
    (sentence,) = problems(database_url="mysql://me:secret@db/shop")
    settings = Settings.load(database_url="postgres://me:secret@db/shop", nats_url="nats://me:secret@nats")

    assert "secret" not in sentence + repr(settings) + str(settings)
    assert "postgres://me:…@db/shop" in repr(settings)


def test_every_problem_is_told_at_once(monkeypatch, tmp_path):
    (tmp_path / "fencepost.toml").write_text("threads = 0")
    monkeypatch.setenv("FENCEPOST_QUEUE", "x")
    monkeypatch.setenv("FENCEPOST_STEP_SLOTS", "x")

    assert len(problems(log_level="x")) == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [("= no toml", "is not TOML"), (None, "cannot be read: No such file"), ("threads = 0", "threads = '0' in x.toml")],
)
def test_a_file_that_is_none_is_one_sentence(tmp_path, text, says):
    if text is not None:
        (tmp_path / "x.toml").write_text(text)

    (sentence,) = problems(config="x.toml")

    assert says in sentence


@pytest.mark.parametrize(("form", "is_json"), [("json", True), ("auto", True), ("console", False)])
def test_logs_of_ours_and_of_libraries_have_one_form_on_stderr(form, is_json):
    program = f"""
import logging, structlog, fencepost
fencepost.configure_logging({form!r}, "info")
structlog.get_logger("fencepost.x").debug("too quiet")
structlog.get_logger("fencepost.x").info("ours", run="run_1")
logging.getLogger("fencepost.bus").warning("theirs %s", 1)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    lines = ran.stderr.splitlines()
    assert (ran.stdout, len(lines)) == ("", 2)
    if is_json:
        ours, theirs = map(json.loads, lines)
        assert (ours["event"], ours["run"], ours["level"], ours["logger"]) == ("ours", "run_1", "info", "fencepost.x")
        assert (theirs["event"], theirs["logger"]) == ("theirs 1", "fencepost.bus")
    else:
        assert "ours" in lines[0]
        assert "theirs 1" in lines[1]


def test_an_inbox_prefix_that_answers_could_not_reach_is_refused(monkeypatch):
    monkeypatch.setenv("FENCEPOST_NATS_INBOX_PREFIX", "mine.>")

    with pytest.raises(SettingsError, match=r"NATS_INBOX_PREFIX.*_INBOX, or _INBOX_"):
        Settings.load()
