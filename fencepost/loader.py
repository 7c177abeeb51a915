"""From a TARGET to an App: a folder, a file, a module, or one of these with `:name`.

Code is imported under the name it would have in a program of its own (its folder on `sys.path`), so that a step in a
process of its own can import it again.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import tomllib
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from structlog.testing import capture_logs

from fencepost.actors import App

from .errors import FencepostError, LoadError

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from types import ModuleType

FIRST_NAMES: Final = ("app.py", "workflows.py", "main.py")
USES_US: Final = re.compile(r"^\s*(from|import)\s+fencepost\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Place:
    """What to import: module names, the folder they are found from, and the folder whose code belongs together."""

    modules: tuple[str, ...]
    root: Path
    folder: Path


def load(target: str) -> App:
    """Import what a target names and return its App with every workflow and step of its folder.

    Raises:
        LoadError: nothing there, it does not import, no workflow in it, or it is not clear which App is meant.
        DefinitionError: two functions have one name.
    """
    where, name = _split(target)
    place = find(where)
    loaded = [_imported(module, place, where) for module in place.modules]
    modules = _modules_of(place.folder, loaded)
    app = _chosen(loaded, modules, name, target)
    if not name or len(_apps(modules)) == 1:
        for module in modules:
            app.add_from(vars(module).values())
    if not app.workflows:
        raise LoadError(f"{target} has no workflow: decorate an `async def` with @workflow", target)
    return app


def hint_problems(app: App) -> list[str]:
    """Return a sentence for every type hint whose values cross as plain JSON, because it cannot be used."""
    with capture_logs() as told:
        for one in (*app.workflows.values(), *app.steps.values()):
            shapes = [slot.shape for slot in one.params._slots]  # noqa: SLF001  (built at the first use otherwise)
            for shape in (*shapes, one.returns._shape):  # noqa: SLF001
                _ = shape._adapter  # noqa: SLF001
    return list(dict.fromkeys(map(_hint_problem, told)))


def _hint_problem(told: MutableMapping[str, Any]) -> str:
    """Return one sentence: pydantic's own has many, and links."""
    place = told.get("where") or f"{told.get('function')}({told.get('name')})"
    why = re.split(r"\. (?=[A-Z])|\n", str(told.get("error", "")))[0].rstrip(".")
    return f"the type hint of {place} cannot be used, its values cross as plain JSON: {told.get('hint')} ({why})"


def find(where: str) -> Place:
    """Return what a folder, file or module is, without importing it.

    Raises:
        LoadError: nothing of that name, or no code in it.
    """
    path = Path(where)
    if where and path.is_dir():
        return _of_folder(path.resolve())
    if path.is_file():
        return _of_files([path.resolve()])
    if path.suffix == ".py" or "/" in where or "\\" in where or not where:
        raise LoadError(f"there is no file or folder {where!r}", where)
    return _of_module(where)


def _split(target: str) -> tuple[str, str]:
    """Return what is before and after the colon; a path with a colon in it is a path."""
    where, colon, name = target.rpartition(":")
    if not colon or Path(target).exists() or not name.isidentifier():
        return target, ""
    return where, name


# ---- where it is


def _of_folder(folder: Path) -> Place:
    named = _named_in_file(folder)
    if named is not None:
        return _of_files([named])
    first = next((folder / name for name in FIRST_NAMES if (folder / name).is_file()), None)
    files = [first] if first else [file for file in sorted(folder.glob("*.py")) if _uses_us(file)]
    if not files:
        raise LoadError(f"no Python file in {folder} imports fencepost: name the file, or a module", str(folder))
    return _of_files(files)


def _named_in_file(folder: Path) -> Path | None:
    """Return the file that `[dev] app` names."""
    settings = folder / "fencepost.toml"
    if not settings.is_file():
        return None
    try:
        dev: object = tomllib.loads(settings.read_text(encoding="utf-8")).get("dev")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LoadError(f"{settings} is not TOML: {error}", str(folder)) from error
    name = cast("dict[str, object]", dev).get("app") if isinstance(dev, dict) else None
    if name is None:
        return None
    if not isinstance(name, str) or not (folder / name).is_file():
        raise LoadError(f"{settings} names {name!r} as [dev] app: there is no such file beside it", str(folder))
    return (folder / name).resolve()


def _uses_us(file: Path) -> bool:
    return bool(USES_US.search(file.read_text(encoding="utf-8", errors="replace")))


def _of_files(files: list[Path]) -> Place:
    """Return the place of files beside each other; in a package, its parent is where the search begins."""
    folder = root = files[0].parent
    while (root / "__init__.py").is_file():
        root = root.parent
    parts = [file.relative_to(root).with_suffix("").parts for file in files]
    names = tuple(".".join(part[:-1] if part[-1] == "__init__" else part) for part in parts)
    for file, name in zip(files, names, strict=True):
        if not all(part.isidentifier() for part in name.split(".")):
            raise LoadError(f"{file} cannot be imported: give it a name of letters, digits and '_'", str(file))
    return Place(names, root, folder)


def _of_module(name: str) -> Place:
    here = Path.cwd()
    _on_path(here)
    top = name.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top) if top.isidentifier() else None
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise LoadError(f"there is no file, folder or module {name!r}", name)
    if spec.submodule_search_locations:
        return Place((name,), here, Path(next(iter(spec.submodule_search_locations))).resolve())
    return Place((name,), here, Path(spec.origin or ".").resolve().parent)


# ---- importing it


def _on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _imported(name: str, place: Place, target: str) -> ModuleType:
    _on_path(place.root)
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(name)
    except FencepostError as error:
        raise LoadError(f"{_line(error, place.folder)}{error}", target) from error
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise LoadError(f"there is no module {error.name!r}", target) from error
        raise LoadError(_refusal(error, place.folder), target) from error
    except (Exception, SystemExit) as error:
        raise LoadError(_refusal(error, place.folder), target) from error
    _check_own(module, name, place, target)
    return module


def _check_own(module: ModuleType, name: str, place: Place, target: str) -> None:
    """Refuse what came from elsewhere under the same name: a library's module, or one loaded before."""
    origin = getattr(module, "__file__", None)
    if origin and not Path(origin).resolve().is_relative_to(place.folder):
        raise LoadError(f"{name!r} is the name of another module ({origin}): rename the file", target)


def _refusal(error: BaseException, folder: Path) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {error.msg}"
    said = str(error).strip().splitlines()
    return f"{_line(error, folder)}{type(error).__name__}" + (f": {said[0]}" if said else "")


def _line(error: BaseException, folder: Path) -> str:
    """Return `file:line: ` of the last line of the user's own that led to an error."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_own(frame.filename, folder)]
    return f"{own[-1].filename}:{own[-1].lineno}: " if own else ""


# ---- what is in it


def _is_own(file: str | None, folder: Path) -> bool:
    """Tell whether a file belongs to the target: below its folder, and not in an environment that lies there."""
    path = Path(file or "")
    if not path.is_absolute() or not path.is_relative_to(folder):
        return False
    inner = path.relative_to(folder).parts[:-1]
    return not any(part.startswith(".") or part == "site-packages" for part in inner)


def _modules_of(folder: Path, loaded: list[ModuleType]) -> list[ModuleType]:
    others = [
        module
        for name, module in sorted(sys.modules.items())
        if not name.startswith("fencepost.") and _is_own(getattr(module, "__file__", None), folder)
    ]
    return list({id(module): module for module in [*loaded, *others]}.values())


def _apps(modules: list[ModuleType]) -> dict[int, tuple[str, App]]:
    """Return the Apps by identity, each with a name it goes by."""
    return {
        id(value): (f"{module.__name__}:{name}", value)
        for module in reversed(modules)
        for name, value in vars(module).items()
        if isinstance(value, App)
    }


def _chosen(loaded: list[ModuleType], modules: list[ModuleType], name: str, target: str) -> App:
    if name:
        return _named(loaded, name, target)
    apps = list(_apps(modules).values())
    if len(apps) > 1:
        names = " or ".join(sorted(name for name, _ in apps))
        raise LoadError(f"{target} has {len(apps)} Apps: say which one with {names}", target)
    return apps[0][1] if apps else App("default")


def _named(loaded: list[ModuleType], name: str, target: str) -> App:
    found = next((vars(module)[name] for module in loaded if name in vars(module)), None)
    if isinstance(found, App):
        return found
    what = "there is no such name" if found is None else f"it is a {type(found).__name__}"
    raise LoadError(f"{target} names no App: {what} in {', '.join(module.__name__ for module in loaded)}", target)
