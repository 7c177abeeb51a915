"""From a TARGET to an App, and one sentence for what is no target."""

import os
import sys
from textwrap import dedent

import pytest

from fencepost import Node, Settings
from fencepost.errors import DefinitionError, LoadError, SettingsError
from fencepost.loader import hint_problems, load

WORKFLOW = """
from fencepost import App, step, workflow

@workflow
async def {name}() -> str:
    return "{name}"
"""


@pytest.fixture(autouse=True)
def forget(monkeypatch, tmp_path):
    """Every test has the folder to itself; what it loaded is forgotten."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "app", raising=False)  # another test of this process may have loaded an example
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(dedent(text))

    return write


def workflows(target="."):
    return sorted(load(str(target)).workflows)


def refusal(target="."):
    with pytest.raises(LoadError) as error:
        load(str(target))
    assert "\n" not in str(error.value)
    return str(error.value)


# ---- what is found


def test_without_an_app_the_workflows_of_a_file_make_one(write, tmp_path):
    write("jobs.py", WORKFLOW.format(name="one"))

    app = load(str(tmp_path / "jobs.py"))

    assert (app.name, list(app.workflows)) == ("default", ["one"])
    assert app.workflows["one"].fn.__module__ == "jobs"


def test_the_one_app_gets_what_its_neighbours_declare(write):
    write("app.py", 'import more\nfrom fencepost import App\nshop = App("shop")')
    write("more.py", WORKFLOW.format(name="one") + "@step\ndef two() -> None: ...\n")
    write(".venv/lib/site-packages/theirs.py", WORKFLOW.format(name="not_ours"))

    app = load(".")

    assert (app.name, list(app.workflows), list(app.steps)) == ("shop", ["one"], ["two"])


def test_a_folder_is_what_its_settings_file_names(write):
    write("fencepost.toml", '[dev]\napp = "here.py"')
    write("here.py", WORKFLOW.format(name="here"))
    write("app.py", WORKFLOW.format(name="not_here"))

    assert workflows() == ["here"]


@pytest.mark.parametrize("name", ["app.py", "workflows.py", "main.py"])
def test_a_folder_has_names_that_come_first(write, name):
    write(name, WORKFLOW.format(name="first"))
    write("other.py", WORKFLOW.format(name="other"))

    assert workflows() == ["first"]


def test_a_folder_without_these_is_every_file_that_uses_fencepost(write):
    write("a.py", WORKFLOW.format(name="one"))
    write("b.py", WORKFLOW.format(name="two"))
    write("c.py", "raise SystemExit('no part of it')")

    assert workflows() == ["one", "two"]


def test_a_module_is_found_from_the_current_folder(write):
    write("pack/__init__.py", "")
    write("pack/jobs.py", "from .more import one")
    write("pack/more.py", WORKFLOW.format(name="one"))

    assert workflows("pack.jobs") == ["one"]


def test_a_file_in_a_package_keeps_its_full_name(write):
    write("shop/__init__.py", "")
    write("shop/jobs.py", "from .more import one")
    write("shop/more.py", WORKFLOW.format(name="one"))

    app = load("shop/jobs.py")

    assert app.workflows["one"].fn.__module__ == "shop.more"


def test_one_of_several_apps_is_named(write):
    write("jobs.py", WORKFLOW.format(name="one") + 'a = App("a", [one])\nb = App("b")\n')

    assert load("jobs:a").name == "a"
    assert refusal("jobs") == "jobs has 2 Apps: say which one with jobs:a or jobs:b"
    assert "has no workflow" in refusal("jobs.py:b")
    assert "there is no such name in jobs" in refusal("jobs:c")
    assert "it is a Workflow in jobs" in refusal("jobs:one")


async def test_a_step_in_a_process_of_its_own_finds_its_function_again(write):
    write(
        "app.py",
        """
        import os
        from fencepost import step, workflow

        @step(isolate=True)
        def elsewhere() -> int:
            return os.getpid()

        @workflow
        async def isolated() -> int:
            return await elsewhere()
        """,
    )

    async with Node(load("."), settings=Settings.load(world="sqlite:///:memory:")) as node:
        run = await node.client().start("isolated")

        assert await run.result(timeout=30) != os.getpid()


def test_type_hints_that_cannot_be_used_are_a_sentence_each(write):
    write(
        "app.py",
        """
        from __future__ import annotations
        from fencepost import step, workflow

        class Odd: ...

        @step
        async def good(n: int, name: str | None = None) -> list[str]: ...

        @step
        async def bad(n: int, odd: Odd) -> Nowhere: ...

        @workflow
        async def one(n) -> Odd: ...
        """,
    )

    problems = sorted(hint_problems(load(".")))

    begins = "the type hint of {} cannot be used, its values cross as plain JSON: "
    assert [problem.split(": ")[0] + ": " for problem in problems] == [
        begins.format(place) for place in ("bad(odd)", "bad(return)", "one() result")
    ]
    assert "Odd" in problems[0]
    assert "Nowhere" in problems[1]
    assert not any("\n" in problem or "http" in problem for problem in problems)


# ---- what is not


def test_nothing_there_is_said_in_one_sentence(write, tmp_path):
    write("empty/notes.txt", "")
    write("empty/other.py", "print('hello')")

    assert refusal("nowhere.py") == "there is no file or folder 'nowhere.py'"
    assert refusal("no/where") == "there is no file or folder 'no/where'"
    assert refusal("nowhere") == "there is no file, folder or module 'nowhere'"
    assert refusal("") == "there is no file or folder ''"
    assert refusal("empty").startswith(f"no Python file in {tmp_path}/empty imports fencepost")


def test_a_file_without_a_workflow_is_said_so(write):
    write("app.py", "from fencepost import App\napp = App()")

    assert refusal() == ". has no workflow: decorate an `async def` with @workflow"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("import fencepost\nimport nothing_like_it", 2, "ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("import fencepost\n\n1 / 0", 3, "ZeroDivisionError: division by zero"),
        ("import fencepost\ndef f(:", 2, "invalid syntax"),
        ("import fencepost\nraise SystemExit(3)", 2, "SystemExit: 3"),
        ("from fencepost import workflow\n@workflow\ndef plain(): ...", 2, "must be an `async def`"),
    ],
)
def test_an_error_in_the_users_file_is_told_with_its_line(write, tmp_path, text, line, says):
    write("app.py", text)

    sentence = refusal()

    assert sentence.startswith(f"{tmp_path}/app.py:{line}: ")
    assert says in sentence


def test_an_error_in_a_neighbour_is_told_with_the_neighbours_line(write, tmp_path):
    write("app.py", "import fencepost\nimport more")
    write("more.py", "\n\nint('x')")

    assert refusal().startswith(f"{tmp_path}/more.py:3: ValueError: invalid literal")


def test_a_name_used_by_two_functions_is_refused(write):
    write("a.py", WORKFLOW.format(name="one"))
    write("b.py", WORKFLOW.format(name="one"))

    with pytest.raises(DefinitionError, match="'one' is used by two functions"):
        load(".")


def test_a_file_called_like_another_module_is_refused(write):
    write("json.py", WORKFLOW.format(name="one"))

    assert "'json' is the name of another module" in refusal("json.py")


def test_a_file_that_cannot_be_imported_is_refused(write):
    write("my-jobs.py", WORKFLOW.format(name="one"))

    assert "cannot be imported: give it a name of letters" in refusal("my-jobs.py")


@pytest.mark.parametrize("text", ["= no toml", '[dev]\napp = "gone.py"', "[dev]\napp = 3"])
def test_a_settings_file_that_names_nothing_is_said_so(write, text):
    write("fencepost.toml", text)

    assert "fencepost.toml" in refusal()


def test_settings_are_read_when_a_node_is_made(write, monkeypatch):
    write("app.py", WORKFLOW.format(name="one"))
    monkeypatch.setenv("FENCEPOST_THREADZ", "1")

    with pytest.raises(SettingsError, match="FENCEPOST_THREADS"):
        Node(load("."))
