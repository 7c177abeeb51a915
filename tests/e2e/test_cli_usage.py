"""What is wrong ends as one sentence and an exit code that says of which kind it is."""

import re

import pytest

from fencepost.cli.entry import run
from fencepost.cli.exits import CommandError
from fencepost.cli.project import project_in
from tests.e2e.command import APP, fencepost, free_port, target

pytestmark = pytest.mark.timeout(60)

WRONG = {
    "no such command": ["bogus"],
    "no such option": ["runs", "ls", "--bogus"],
    "an argument is missing": ["start"],
    "a number is none": ["runs", "ls", "--limit", "many"],
    "a number is out of range": ["runs", "ls", "--limit", "0"],
    "the input is no JSON": ["start", "w", "--input", "{"],
    "the input file is not there": ["start", "w", "--input", "@nowhere.json"],
    "the lines are not there": ["start", "w", "--input", "@nowhere.jsonl"],
    "one id for all lines": ["start", "w", "--input", "-", "--id", "fixed"],
    "an id without a field": ["start", "w", "--input", "-", "--id", "{}"],
    "an id with half a brace": ["start", "w", "--input", "-", "--id", "{id"],
    "an id from an input that is none": ["start", "w", "--id", "{id}"],
    "an id the input has not": ["start", "w", "--input", '{"a": 1}', "--id", "{id}"],
    "an attribute without a value": ["start", "w", "--attribute", "key"],
    "an attribute to look for without a value": ["runs", "ls", "--attribute", "key"],
    "a namespace that cannot be one": ["runs", "ls", "--namespace", "a.b"],
}


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG.keys())
def test_wrong_usage_is_one_sentence_and_exit_code_2(words, capsys):
    code = run(words)

    said = capsys.readouterr()
    assert code == 2
    assert said.out == ""
    assert said.err.startswith("fencepost: ")
    assert said.err.count("\n") == 1


def test_an_unknown_setting_is_refused_with_the_nearest_name(monkeypatch, capsys):
    monkeypatch.setenv("FENCEPOST_NATS_ULR", "nats://localhost")

    code = run(["runs", "ls"])

    assert code == 2
    assert capsys.readouterr().err == "fencepost: FENCEPOST_NATS_ULR is no setting: did you mean FENCEPOST_NATS_URL?\n"


def test_a_server_that_is_not_there_is_exit_code_3(capsys):
    port = free_port()

    asking = ["runs", "ls"], ["start", "w"], ["doctor"]

    codes = [run([*words, "--url", f"nats://127.0.0.1:{port}"]) for words in asking]

    said = capsys.readouterr()
    assert codes == [3, 3, 3]
    assert f"fencepost: no NATS server at nats://127.0.0.1:{port}: start one there" in said.err
    assert "Traceback" not in said.err


def test_help_and_version_tell(capsys):
    assert run(["--version"]) == 0
    assert run(["--help"]) == 0
    assert run(["runs", "--help"]) == 0

    said = capsys.readouterr().out
    assert said.startswith("fencepost 0.")
    assert all(word in said for word in ("dev", "start", "runs", "dead", "doctor", "terminate", "resume", "events"))


def test_a_group_without_its_command_shows_its_help(capsys):
    codes = [run(["runs"]), run(["dead"])]

    said = capsys.readouterr().err
    assert codes == [2, 2]
    assert said.startswith("Usage: fencepost runs")
    assert "Usage: fencepost dead" in said


def test_help_names_statuses_exit_codes_and_ways_to_give_input(capsys):
    for words in (["runs", "ls"], ["doctor"], ["start"]):
        run([*words, "--help"])

    said = " ".join(capsys.readouterr().out.split())
    assert "pending, running, stalled (waits for a person), completed, failed, cancelled, terminated; or live" in said
    assert "Exit 3 if no server or no node can be reached, 1 if anything else is bad." in said
    assert 'also as {"kwargs": {…}}' in said


def test_arguments_and_input_together_are_wrong_usage(capsys):
    codes = [run(["start", "w", "--arg", "n=1", "-i", "1"]), run(["start", "w", "--arg", "n"])]

    assert codes == [2, 2]
    assert capsys.readouterr().err.count("\n") == 2


TOML = {
    "[dev]\nrnu = []": "unknown setting 'rnu': did you mean 'run'?",
    "[dev]\nrun = 'python x.py'": "[dev] run must be a list",
    "[dev]\nrun = [1]": "[dev] run must be a list of commands",
    "dev = 1": "[dev] must be a table",
    "[dev.start]\nworkflow = 'twice'": "[dev.start] needs 'input'",
    "[dev.start]\nworkflow = 'twice'\ninput = 'app.py'": "[dev.start] needs 'id'",
    "[dev.start]\nworkflow = 'twice'\ninput = 'app.py'\nid = 'fixed'": "gives every line the same id",
    "[dev.start]\nworkflow = 'twice'\ninput = 'nowhere.jsonl'\nid = '{id}'": "there is no file",
    "[dev": "cannot be read",
}


@pytest.mark.parametrize(("toml", "sentence"), TOML.items())
def test_a_fencepost_toml_that_is_wrong_is_wrong_usage(tmp_path, toml, sentence):
    (tmp_path / "fencepost.toml").write_text(toml)
    (tmp_path / "app.py").write_text(APP)

    with pytest.raises(CommandError, match=re.escape(sentence)) as refused:
        project_in(tmp_path)

    assert refused.value.code == 2


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ("[dev]\nrun = ['no-such-program-anywhere']", "there is no command 'no-such-program-anywhere'"),
        ("[dev.start]\nworkflow = 'thrice'\ninput = 'app.py'\nid = '{id}'", "'thrice'; there is slow, stuck, twice"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused_before_anything_starts(tmp_path, toml, sentence):
    (tmp_path / "fencepost.toml").write_text(toml)
    (tmp_path / "app.py").write_text(APP)

    done = fencepost("dev", ".", folder=tmp_path)

    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / ".fencepost" / "nats").exists()


def test_a_port_that_cannot_be_one_is_wrong_usage(tmp_path):
    done = fencepost("dev", target(tmp_path / "shop"), "--port", "70000", folder=tmp_path)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_code_that_does_not_load_is_one_sentence_with_its_line(tmp_path):
    folder = target(tmp_path / "shop", app="import nowhere_to_be_found\n")

    done = fencepost("dev", folder, folder=tmp_path)
    missing = fencepost("dev", "nowhere", folder=tmp_path)

    assert done.returncode == 2
    assert "app.py:1: ModuleNotFoundError: No module named 'nowhere_to_be_found'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)


def test_a_world_file_that_is_none_is_one_sentence(tmp_path):
    folder = target(tmp_path / "shop")
    (folder / ".fencepost").mkdir()
    (folder / ".fencepost" / "world.db").write_text("this is a letter to my aunt\n" * 100)

    done = fencepost("dev", folder, folder=tmp_path)

    assert done.returncode == 1
    assert "world.db" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
