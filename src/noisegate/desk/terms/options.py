"""Options by name, held against the fields of what takes them, before anything is paid.

>>> from noisegate.releases.recipes.tree import Tree
>>> require_options("tree", Tree, {"branching": 2.5})
Traceback (most recent call last):
    ...
noisegate.errors.SpecError: branching is '2.5'. Use a whole number, or leave it out.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from noisegate.errors import SpecError

_FAR: Final = 1 << 63  # numbers beyond it are not sizes of anything
_WORDS: Final[Mapping[Any, str]] = MappingProxyType({
    bool: "True or False", int: "a whole number", float: "a number", tuple: "lists of numbers",
})  # fmt: skip


def require_options(name: str, kind: type, options: Mapping[str, Any]) -> None:
    """Refuse options that ``kind``, a dataclass, has no field for, lacks, or has another type for.

    Texts, and exact numbers such as shares, are left to those who read them.
    """
    known = {each.name: each for each in fields(kind)}
    listed = f"Its options: {', '.join(sorted(known)) or 'none'}."
    if unknown := options.keys() - known.keys():
        raise SpecError(f"{name!r} has no option {min(unknown)!r}.", fix=listed, about="option")
    for option, each in known.items():
        if option not in options and each.default is MISSING:
            raise SpecError(f"{name!r} needs the option {option!r}.", fix=listed, about="missing")
    hints = get_type_hints(kind)
    for option, value in options.items():
        if not _is_of(hints[option], value):
            raise SpecError(
                f"{option} is {str(value)[:40]!r}.", fix=f"{_fix(hints[option])}.", about="value"
            )


def _is_of(hint: Any, value: Any) -> bool:  # noqa: ANN401 - a type as it is written, any value
    if isinstance(hint, UnionType):
        return any(_is_of(each, value) for each in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_is_of(get_args(hint)[0], each) for each in value)
    if hint is float:
        return type(value) in (int, float) and abs(value) < _FAR
    if hint is int:
        return type(value) is int and abs(value) < _FAR
    return hint not in (bool, NoneType) or isinstance(value, hint)


def _fix(hint: Any) -> str:  # noqa: ANN401 - a type as it is written
    plain, *rest = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return f"Use {_WORDS[get_origin(plain) or plain]}{', or leave it out' if rest else ''}"
