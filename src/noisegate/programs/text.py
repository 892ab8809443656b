r"""Functions as programs: their text, with all that they use from around them.

A program runs in a process of its own that knows nothing of this one, so it is sent as text; and
the text is what the ledger knows it by. What a function uses of its module comes along: imports,
functions, classes, numbers and texts. Written anew from its syntax tree, a program is the same
whatever its comments and layout are.

>>> program_of("numbers.py:mean", read=lambda _: "# of one column\ndef mean(rows): return 1")
Program(text='def mean(rows):\n    return 1', name='mean', imports=())
"""

import ast
import builtins
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from sysconfig import get_path
from types import FunctionType, ModuleType
from typing import Any, Final, TypeAlias

from noisegate.algebra.blocks import Program
from noisegate.errors import SpecError

Function: TypeAlias = Callable[..., object] | str  # or file.py:name
_Tree: TypeAlias = ast.FunctionDef | ast.Lambda | ast.ClassDef
_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), tuple, list, dict)
_LIBRARIES: Final = ("stdlib", "platstdlib", "purelib", "platlib")
_NAME: Final = "program"  # of a lambda


def program_of(
    function: Function,
    *,
    imports: tuple[str, ...] = (),
    read: Callable[[str], str] | None = None,
) -> Program:
    """A function, or ``file.py:name``, as a program. ``imports`` are more modules to load."""
    if isinstance(function, str):
        text, name = _in_file(function, read or _read)
    elif isinstance(function, FunctionType):
        text, name = _with_surroundings(function)
    else:
        raise SpecError(
            "The program is not a function.",
            fix='Give a function, or "file.py:name".',
            about="function",
        )
    return completed(Program(text, name, imports))


def completed(program: Program) -> Program:
    """A program with all that it imports, unless its text does not define its function."""
    try:
        tree = ast.parse(program.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SpecError(
            "The text of the program is not valid Python.", fix="Mend its syntax."
        ) from None
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    names |= {each.id for node in tree.body if isinstance(node, ast.Assign)
              for each in node.targets if isinstance(each, ast.Name)}  # fmt: skip
    if program.name not in names:
        raise SpecError(
            f"The program does not define {program.name!r}.", fix="Name a function of its text."
        )
    imports = (*_imported(program.text), *program.imports)
    return Program(program.text, program.name, tuple(dict.fromkeys(imports)))


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise SpecError(
            f"{file!r} cannot be read.", fix="Give a Python file.", about="file"
        ) from None


def _in_file(place: str, read: Callable[[str], str]) -> tuple[str, str]:
    file, colon, name = place.rpartition(":")
    if not colon or not file or not name.isidentifier():
        raise SpecError(
            f"{place!r} does not name a function.", fix="Write file.py:name.", about="place"
        )
    try:
        tree = ast.parse(read(file))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SpecError(
            f"{file!r} is not valid Python.", fix="Correct its syntax.", about="syntax"
        ) from None
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if name not in defined:
        known = f"Its functions: {', '.join(defined)}." if defined else "Define one."
        raise SpecError(f"{file!r} has no function {name!r}.", fix=known, about="function")
    return ast.unparse(tree), name


def _imported(text: str) -> Iterator[str]:
    """The modules that a program's text imports anywhere."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _with_surroundings(function: FunctionType) -> tuple[str, str]:
    found: dict[str, str] = {}
    tree = _tree(function)
    name = _NAME if isinstance(tree, ast.Lambda) else function.__name__
    _collect(name, function, found)
    return "\n".join(found.values()), name


def _collect(name: str, value: object, found: dict[str, str]) -> None:
    """The line or definition that makes a name, after all that it needs itself."""
    if name in found:
        return
    found[name] = ""  # being made: functions may call each other
    if isinstance(value, ModuleType):
        text = f"import {value.__name__} as {name}"
    elif isinstance(value, FunctionType | type) and _is_own(value):
        text = _defined(name, value, found)
    elif (home := _home(value)) is not None:
        text = f"from {home[0]} import {home[1]} as {name}"
    elif isinstance(value, _PLAIN) and _is_plain(value):
        text = f"{name} = {value!r}"
    else:
        raise SpecError(
            f"The program uses {name!r}, which cannot be sent with it.",
            fix="Define it inside the function, or write the program into a file.",
            about="name",
        )
    del found[name]
    found[name] = text


def _is_own(value: Any) -> bool:  # noqa: ANN401
    """Whether it was defined by hand, and is not part of an installed module."""
    module = sys.modules.get(value.__module__)
    file = getattr(module, "__file__", None)
    libraries = tuple(str(Path(get_path(name)).resolve()) for name in _LIBRARIES)
    return file is None or not str(Path(file).resolve()).startswith(libraries)


def _home(value: Any) -> tuple[str, str] | None:  # noqa: ANN401
    """The module and name that an installed thing is found by."""
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    held = getattr(sys.modules.get(module or ""), name or "", None)
    return (module, name) if module and name and held is value else None


def _is_plain(value: object) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False


def _defined(name: str, value: Any, found: dict[str, str]) -> str:  # noqa: ANN401
    """The text of a function or class, with what it uses collected before it."""
    tree = _tree(value)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    around = _around(value)
    for each in sorted(used & around.keys() - vars(builtins).keys()):
        _collect(each, around[each], found)
    if isinstance(tree, ast.Lambda):
        return f"{name} = {ast.unparse(tree)}"
    if tree.decorator_list:
        raise SpecError(f"{tree.name!r} is decorated.", fix="Leave the decorator out.")
    tree.name = name
    return ast.unparse(tree)


def _around(value: Any) -> dict[str, Any]:  # noqa: ANN401
    """The names that a function or class can see: of its module, and of functions around it."""
    if isinstance(value, type):
        return dict(vars(sys.modules[value.__module__]))
    cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
    local = {*value.__code__.co_varnames, *value.__code__.co_cellvars}
    names = {name: held for name, held in value.__globals__.items() if name not in local}
    return names | {name: cell.cell_contents for name, cell in cells}


def _tree(value: Any) -> _Tree:  # noqa: ANN401
    """The syntax tree of a function or class, from the text that it was read from."""
    try:
        lines, number = inspect.findsource(value)
    except (OSError, TypeError):
        raise SpecError(
            "The source code of the function is not available.",
            fix='Write it to a file, and give "file.py:name".',
            about="source",
        ) from None
    nodes = ast.walk(ast.parse("".join(lines)))
    if isinstance(value, type):
        made = [n for n in nodes if isinstance(n, ast.ClassDef) and n.lineno == number + 1]
        return made[0]
    first = value.__code__.co_firstlineno
    if value.__name__ == "<lambda>":
        found = [n for n in nodes if isinstance(n, ast.Lambda) and n.lineno == first]
    else:
        found = [n for n in nodes if isinstance(n, ast.FunctionDef) and first in _lines(n)]  # type: ignore[misc]
    if len(found) != 1:
        raise SpecError(
            "It is not clear which function is meant.",
            fix="Define it with def and a name.",
            about="ambiguous",
        )
    return found[0]


def _lines(node: ast.FunctionDef) -> Iterator[int]:
    """Where a function may be said to begin."""
    yield node.lineno
    yield from (decorator.lineno for decorator in node.decorator_list)
