"""What is easily left behind: notes to oneself, silenced checks, waits, paths of one's own machine."""

import ast
import io
import re
import tokenize

import pytest


@pytest.fixture(scope="module")
def comments(programs) -> list[tuple[str, str]]:
    """Every comment with its place."""
    return [
        (file.at(token.start[0]), token.string)
        for file in programs
        for token in tokenize.generate_tokens(io.StringIO(file.text).readline)
        if token.type == tokenize.COMMENT
    ]


def having(comments, pattern: str) -> list[str]:
    return [f"{where} {text}" for where, text in comments if re.search(pattern, text)]


def calls(files):
    """Yield every call with the dotted name of what is called."""
    for file in files:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Call):
                yield file, node, ast.unparse(node.func)


def test_no_comment_is_a_note_for_later(comments):
    assert having(comments, r"\b(TODO|FIXME|XXX|HACK)\b") == []


def test_nothing_is_left_unimplemented(modules):
    left = [
        file.at(node)
        for file in modules
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Raise) and node.exc and ast.unparse(node.exc).startswith("NotImplementedError")
    ]

    assert left == []


def test_every_silenced_check_is_named(comments):
    assert having(comments, r"#\s*noqa(?!: ?[A-Z]+\d)") == []
    assert having(comments, r"#\s*type:\s*ignore(?!\[[\w-]+)") == []
    assert having(comments, r"#\s*pyright:\s*ignore(?!\[\w+)") == []
    assert having(comments, r"#\s*(ruff: noqa(?!: ?[A-Z])|mypy: ignore-errors|pyright: basic)") == []


def test_every_skip_says_why(tests):
    silent = [
        file.at(node, name)
        for file, node, name in calls(tests)
        if re.fullmatch(r"pytest\.(mark\.)?(skip|skipif|xfail)", name) and not says_why(node, name)
    ]
    bare = [
        file.at(number)
        for file in tests
        for number, line in enumerate(file.lines, 1)
        if re.match(r"\s*@pytest\.mark\.(skip|skipif|xfail)\s*$", line)
    ]

    assert silent + bare == []


def says_why(call: ast.Call, name: str) -> bool:
    by_position = call.args and not name.endswith("skipif")
    return bool(by_position) or any(keyword.arg == "reason" for keyword in call.keywords)


def test_a_test_waits_for_a_signal_or_says_why_it_waits_for_time(tests):
    waits = [
        file.at(node)
        for file, node, name in calls(tests)
        if re.fullmatch(r"(time|asyncio|anyio)\.sleep", name) and not is_explained(file, node)
    ]

    assert waits == [], "wait for a signal, turn a clock, or say `# real time: …` on the line or the one above"


def is_explained(file, call: ast.Call) -> bool:
    """Tell whether a sleep is a mere yield, durable (a workflow's), or has its reason beside it."""
    if call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0:
        return True
    around = "\n".join(file.lines[max(call.lineno - 2, 0) : call.end_lineno])
    return "# real time:" in around or is_durable(file, call)


def is_durable(file, call: ast.Call) -> bool:
    """Tell whether a sleep is on a workflow's own loop: in a `@workflow`, or in a file that says so once."""
    inside = [
        node
        for node in ast.walk(file.tree)
        if isinstance(node, ast.AsyncFunctionDef) and node.lineno <= call.lineno <= node.end_lineno
    ]
    decorated = any("workflow" in ast.unparse(mark) for node in inside for mark in node.decorator_list)
    return decorated or re.search(r"^# workflow time:", file.text, re.MULTILINE) is not None


def test_no_file_names_a_place_on_somebodys_machine(files):
    mine = re.compile(r"(?<![\w.{}<>-])/(home|Users|root|work)/\w|\b[A-Z]:\\Users")
    found = [
        file.at(number, line.strip()[:80])
        for file in files
        for number, line in enumerate(file.lines, 1)
        if mine.search(line)
    ]

    assert found == []


def test_no_file_names_the_host_of_a_package_index(files):
    hosts = re.compile("|".join((r"pypi\." + "org", "python" + "hosted", "npm" + r"js\.org", "index-" + "url =")))

    assert [file.name for file in files if hosts.search(file.text)] == []


def test_no_line_holds_a_conflict_or_a_breakpoint(files, programs):
    conflicts = [file.name for file in files if re.search(r"^(<{7}|>{7}) ", file.text, re.MULTILINE)]
    stops = [file.at(node) for file, node, name in calls(programs) if name in {"breakpoint", "pdb.set_trace"}]

    assert conflicts + stops == []
