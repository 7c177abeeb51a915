"""What a newcomer reads: short, in order, true as far as a machine can tell."""

import ast
import hashlib
import importlib.util
import re

import pytest

from fencepost import Settings, errors
from fencepost.world import events

COMMANDS = [
    "python3 bootstrap.py fencepost dev examples/orders --once",
    "python3 bootstrap.py pytest",
]
TERMS = {
    "admission",
    "attempt",
    "batch",
    "bell",
    "bus",
    "chain",
    "claim",
    "dead letter",
    "decider",
    "divergence",
    "due",
    "event",
    "fence",
    "fold",
    "hook",
    "in-band",
    "incarnation",
    "inert",
    "journal",
    "key",
    "lease",
    "lock",
    "namespace",
    "node",
    "operation",
    "order",
    "outside",
    "partition",
    "passivate",
    "path",
    "pending",
    "position",
    "quiet",
    "repair",
    "result",
    "run",
    "stalled",
    "step",
    "superseded",
    "sweep",
    "ticket",
    "tick",
    "token",
    "turn",
    "wake",
    "workflow",
    "world",
}


@pytest.fixture(scope="module")
def readme(root) -> str:
    return (root / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def decisions(root) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted((root / "docs/decisions").glob("0*.md"))}


def test_the_readme_has_at_most_a_hundred_lines_and_shows_code_by_line_25(readme):
    lines = readme.splitlines()

    assert len(lines) <= 100
    assert lines.index("```python") < 25


def test_the_readme_sets_up_with_exactly_two_commands(readme):
    said = re.findall(r"^\$ (python3 bootstrap\.py .*?)(?:\s+#.*)?$", readme, re.MULTILINE)

    assert said == COMMANDS


def test_ci_runs_the_readmes_test_command_last(root):
    assert (root / ".ci/run").read_text(encoding="utf-8").splitlines()[-1] == COMMANDS[1]


def test_every_link_between_pages_leads_somewhere(pages):
    dead = [
        f"{page.name}: {link}"
        for page in pages
        for link in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.text)
        if not (page.path.parent / link).exists()
    ]

    assert dead == []


def test_python_in_pages_compiles(blocks):
    wrong = []
    for block in blocks:
        if block.language == "python":
            try:
                compile(block.text, block.page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            except SyntaxError as error:
                wrong.append(block.page.at(block.line, str(error)))

    assert wrong == []


def test_the_index_of_the_documentation_names_every_page(root, pages):
    index = (root / "docs/README.md").read_text(encoding="utf-8")
    below = [page.path.relative_to(root / "docs") for page in pages if page.top == "docs"]
    listed = [path.as_posix() for path in below if path.parts[0] != "decisions" and path.name != "README.md"]

    assert [name for name in listed if f"({name})" not in index] == []


def test_the_reference_is_what_the_code_says(root):
    spec = importlib.util.spec_from_file_location("generate", root / "docs/reference/generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)

    for name, text in generate.pages().items():
        on_disk = (root / "docs/reference" / name).read_text(encoding="utf-8")
        assert on_disk == text, "run `python3 bootstrap.py python docs/reference/generate.py`"


def test_the_reference_names_every_public_error_setting_event_and_endpoint(root):
    page = {path.stem: path.read_text(encoding="utf-8") for path in (root / "docs/reference").glob("*.md")}
    tags = [str(body.__struct_config__.tag) for body in events.EventBody.__args__]

    assert [name for name in errors.__all__ if f"| `{name}` |" not in page["errors"]] == []
    assert [name for name in Settings.model_fields if f"`FENCEPOST_{name.upper()}`" not in page["settings"]] == []
    assert [tag for tag in tags if f"## `{tag}`" not in page["events"]] == []
    assert all(f"`api.{name}`" in page["subjects"] for name in ("start", "result", "runs", "info"))


def test_decisions_are_numbered_without_a_gap_and_listed(decisions, root):
    index = (root / "docs/decisions/README.md").read_text(encoding="utf-8")

    assert [name[:4] for name in decisions] == [f"{number:04}" for number in range(1, len(decisions) + 1)]
    assert [name for name in decisions if f"({name})" not in index] == []


def test_each_decision_says_context_choice_and_what_we_gave_up_on_one_page(decisions):
    headings = ["## Context", "## Choice", "## What we gave up"]
    wrong = [name for name, text in decisions.items() if re.findall(r"^## .*$", text, re.MULTILINE) != headings]
    long = [name for name, text in decisions.items() if len(text.splitlines()) > 60]

    assert wrong + long == []


def test_each_dependency_has_its_reason_in_a_decision(decisions, project):
    extras = [name for group in project["project"]["optional-dependencies"].values() for name in group]
    named = [re.split(r"[<>=\[ ;]", name)[0] for name in project["project"]["dependencies"] + extras]

    assert [name for name in named if not any(f"`{name}`" in text for text in decisions.values())] == []


def test_the_glossary_has_each_word_once_and_in_order(root):
    glossary = (root / "docs/glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\*\*([^*]+)\*\*", glossary, re.MULTILINE)

    assert words == sorted(set(words))
    assert TERMS - set(words) == set()


def test_the_changelog_knows_this_version(root, project):
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")

    assert re.search(rf"^## .*{re.escape(project['project']['version'])}", changelog, re.MULTILINE)


def test_the_license_is_the_whole_apache_license(root):
    digest = hashlib.sha256((root / "LICENSE").read_bytes()).hexdigest()

    assert digest == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
