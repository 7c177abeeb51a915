"""Who may import whom. `world` and `bus` know nobody, `actors` knows both, `fencepost` is the door."""

import ast
import re
from dataclasses import dataclass

import pytest

FOLDERS = ("world", "bus", "actors")
MAY_IMPORT = {"world": set(), "bus": set(), "actors": {"world", "bus"}, "fencepost": set(FOLDERS)}


@dataclass(frozen=True)
class Import:
    """One import: from which module (with its dots), which names; `import x` has no names."""

    where: str
    top: str
    depth: int
    module: str
    names: tuple[str, ...]
    level: int

    @property
    def folder(self) -> str:
        """The floor that `fencepost.world…` or `from fencepost import world` reaches into."""
        parts = self.module.split(".")
        return parts[1] if len(parts) > 1 else ""


@pytest.fixture(scope="module")
def imports(programs) -> list[Import]:
    return [found for file in programs for node in ast.walk(file.tree) for found in read(file, node)]


def read(file, node) -> list[Import]:
    depth = len(file.name.split("/")) - 1
    if isinstance(node, ast.Import):
        return [Import(file.at(node), file.top, depth, name.name, (), 0) for name in node.names]
    if isinstance(node, ast.ImportFrom):
        names = tuple(name.name for name in node.names)
        return [Import(file.at(node), file.top, depth, node.module or "", names, node.level)]
    return []


def listed(root, folder: str) -> set[str]:
    """Return what others may take from a folder: its face and the modules its stub names."""
    face = ast.parse((root / folder / "__init__.py").read_text(encoding="utf-8"))
    exported = [node.value for node in face.body if isinstance(node, ast.Assign) and is_all(node)]
    stub = (root / "fencepost" / f"{folder}.pyi").read_text(encoding="utf-8")
    return {name for value in exported for name in ast.literal_eval(value)} | set(
        re.findall(r" as (\w+)$", stub, re.MULTILINE)
    )


def is_all(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)


def test_nobody_imports_a_folder_by_its_bare_name_which_would_be_a_second_copy(imports):
    bare = [i.where for i in imports if i.level == 0 and i.module.split(".")[0] in FOLDERS]

    assert bare == []


def test_a_floor_imports_only_the_floors_below_it(imports):
    climbs = [
        f"{i.where} imports {i.module}"
        for i in imports
        if i.top in MAY_IMPORT and i.level == 0 and i.module.split(".")[0] == "fencepost"
        if i.folder not in MAY_IMPORT[i.top]
    ]

    assert climbs == [], "inside a folder import relative; only lower floors are imported by name"


def test_a_relative_import_stays_in_its_folder(imports):
    leaves = [i.where for i in imports if i.top in MAY_IMPORT and i.level > i.depth]

    assert leaves == []


def test_across_folders_only_the_face_or_a_listed_module_is_imported(imports, root):
    offered = {folder: listed(root, folder) for folder in FOLDERS}
    deep = [
        f"{i.where} takes {', '.join(i.names) or i.module} from {i.folder}"
        for i in imports
        if i.top in MAY_IMPORT and i.level == 0 and i.folder in FOLDERS
        if i.module != f"fencepost.{i.folder}" or not set(i.names) <= offered[i.folder] or not i.names
    ]

    assert deep == [], "export it from the folder's __init__, or list the module in fencepost/<folder>.pyi"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_stub_hands_on_the_face_and_modules_that_exist(folder, root):
    first, *rest = (root / "fencepost" / f"{folder}.pyi").read_text(encoding="utf-8").splitlines()

    assert first == f"from {folder} import *"
    for line in rest:
        module = re.fullmatch(rf"from {folder} import (\w+) as \1", line)
        assert module, f"not of the form `from {folder} import x as x`: {line}"
        place = root / folder / module[1]
        assert place.with_suffix(".py").exists() or (place / "__init__.py").exists(), f"no such module: {line}"


def test_the_packages_in_pyproject_are_those_on_the_disk(root, project):
    inner = [path.parent.relative_to(root) for folder in FOLDERS for path in (root / folder).rglob("__init__.py")]
    door = [path.parent.relative_to(root) for path in (root / "fencepost").rglob("__init__.py")]
    on_disk = {f"fencepost.{'.'.join(path.parts)}" for path in inner} | {".".join(path.parts) for path in door}

    assert set(project["tool"]["setuptools"]["packages"]) == on_disk


def test_every_folder_with_modules_is_a_package(modules):
    assert [file.name for file in modules if not (file.path.parent / "__init__.py").exists()] == []


def test_the_three_folders_are_no_programs(modules):
    programs = [
        file.name
        for file in modules
        if file.top in FOLDERS
        and (file.path.name == "__main__.py" or re.search(r"^if __name__", file.text, re.MULTILINE))
    ]

    assert programs == [], "the only entry is the fencepost command"
