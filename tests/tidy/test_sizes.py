"""Small files, small functions, names that say what is in them."""

import ast
import statistics

VAGUE = {"utils", "util", "common", "helpers", "helper", "manager", "managers", "data", "misc"}


def functions(files):
    """Yield every function with its length: all its lines but the docstring."""
    for file in files:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield file, node, length(node)


def length(node) -> int:
    doc = node.body[0] if ast.get_docstring(node, clean=False) is not None else None
    return node.end_lineno - node.lineno + 1 - (doc.end_lineno - doc.lineno + 1 if doc else 0)


def is_stub(node) -> bool:
    """Tell whether a body is `...` only: a promise of an interface, not code."""
    last = node.body[-1]
    return isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant) and last.value.value is ...


def test_no_function_is_longer_than_a_screen(programs):
    long = [file.at(node, f"{node.name}: {lines} lines") for file, node, lines in functions(programs) if lines > 40]

    assert long == []


def test_half_of_all_functions_have_at_most_eight_lines(modules, record_property):
    lengths = [lines for _, node, lines in functions(modules) if not is_stub(node)]

    median = statistics.median(lengths)
    record_property("function_lines_median", median)
    assert median <= 8, f"{len(lengths)} functions"


def test_no_file_is_longer_than_four_hundred_lines(files):
    code = [file for file in files if file.path.suffix in {".py", ".sql", ".pyi"} and file.top != "tests"]

    assert [f"{file.name}: {len(file.lines)}" for file in code if len(file.lines) > 400] == []


def test_no_test_file_is_longer_than_five_hundred_lines(tests):
    assert [f"{file.name}: {len(file.lines)}" for file in tests if len(file.lines) > 500] == []


def test_no_file_or_folder_has_a_name_that_attracts_everything(files):
    vague = [file.name for file in files if VAGUE & {part.split(".")[0] for part in file.name.lower().split("/")}]

    assert vague == []
