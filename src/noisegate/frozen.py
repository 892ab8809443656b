"""Frozen dataclasses that are quick to make.

A process that answers one question makes 260 of them. The standard library compiles six methods
for each, a quarter of the time to a first answer; here the constructor alone is compiled, and the
others are shared functions. Fields, slots, `replace` and all that is not frozen are the standard
library's; what has an ``InitVar`` takes its ``dataclass``.
"""

import dataclasses
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import KW_ONLY, MISSING, Field, asdict, field, fields, is_dataclass, replace
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(made: type | None = None, /, **terms: bool) -> Any:  # noqa: ANN401 - as there
        """As the standard library's."""
        make = dataclasses.dataclass(**terms)
        if terms.get("frozen"):
            make = _frozen(**{term: value for term, value in terms.items() if term != "frozen"})
        return make if made is None else make(made)


__all__ = [
    "KW_ONLY", "MISSING", "Field", "asdict", "dataclass", "field", "fields", "is_dataclass",
    "replace",
]  # fmt: skip


class _Factory:
    """Stands for a default that is made anew."""

    def __repr__(self) -> str:
        return "<factory>"


def _frozen(
    *,
    eq: bool = True,
    repr: bool = True,  # noqa: A002 - its name there
    order: bool = False,
    slots: bool = False,
    **terms: bool,
) -> Callable[[type], type]:
    def make(made: type) -> type:
        own = {name for name, value in vars(made).items() if value is not None}
        made.__doc__ = made.__doc__ or made.__name__  # the standard library would find a signature
        heir = any(map(is_dataclass, made.__mro__[1:]))  # then all must say so
        cls: Any = dataclasses.dataclass(
            init=False, repr=False, eq=order, order=order, slots=slots, frozen=heir, **terms
        )(made)  # fmt: skip
        held = fields(cls)
        if not heir:
            cls.__dataclass_params__.frozen = True
            cls.__setattr__, cls.__delattr__ = _shut(cls, {each.name for each in held})
        if slots and "__getstate__" not in own:
            cls.__getstate__, cls.__setstate__ = _state, _restore
        if "__init__" not in own:
            cls.__init__ = _constructor(cls, held)
        if repr and "__repr__" not in own:
            cls.__repr__ = _text([each.name for each in held if each.repr])
        if eq:
            told = [each for each in held if (each.compare if each.hash is None else each.hash)]
            if "__eq__" not in own:
                cls.__eq__ = _equal(_values(each.name for each in held if each.compare))
            if "__hash__" not in own:
                cls.__hash__ = _hash(_values(each.name for each in told))
        return cls  # type: ignore[no-any-return]

    return make


def _constructor(cls: type, held: Sequence["Field[Any]"]) -> Callable[..., None]:
    """What sets all fields, compiled where the class was made, so that its hints are read there."""
    values: dict[str, Any] = {"_set": object.__setattr__, "_none": _Factory()}
    usual, named, lines = ["self"], list[str](), list[str]()
    for place, each in enumerate(held):
        value = default = ""
        if each.default_factory is not MISSING:
            values[f"_{place}"] = each.default_factory
            value, default = f"_{place}()", "=_none"
            value += f" if {each.name} is _none else {each.name}" if each.init else ""
        elif each.default is not MISSING:
            values[f"_{place}"] = each.default
            value, default = each.name if each.init else f"_{place}", f"=_{place}"
        elif each.init:
            value = each.name
        if each.init:
            (named if each.kw_only else usual).append(f"{each.name}{default}")
        if value:
            lines.append(f"_set(self, {each.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    head = ", ".join([*usual, *(["*", *named] if named else [])])
    body = "\n  ".join(lines or ["pass"])
    text = f"def make({', '.join(values)}):\n def __init__({head}):\n  {body}\n return __init__"
    found: dict[str, Any] = {}
    exec(text, vars(sys.modules[cls.__module__]), found)  # noqa: S102 - names of fields alone
    made: Callable[..., None] = found["make"](**values)
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {each.name: each.type for each in held if each.init} | {"return": None}
    return made


def _shut(cls: Any, names: Collection[str]) -> tuple[Callable[..., None], Callable[..., None]]:  # noqa: ANN401
    """Setting and deleting of fields, and in the class itself of all else, is refused."""

    def refuse(name: str, doing: str) -> NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot {doing} field {name!r}")

    def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            refuse(name, "assign to")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            refuse(name, "delete")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__


def _values(names: Iterable[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of these fields, in their order."""
    match [*names]:
        case []:
            return lambda _: ()
        case [name]:
            value = attrgetter(name)
            return lambda self: (value(self),)
        case held:
            return attrgetter(*held)


def _equal(values: Callable[[Any], tuple[Any, ...]]) -> Callable[..., Any]:
    def __eq__(self: object, other: object) -> Any:  # noqa: ANN401, N807
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


def _text(names: Sequence[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: object) -> str:  # noqa: N807
        held = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({held})"

    return __repr__


def _state(self: Any) -> list[Any]:  # noqa: ANN401 - of any class
    return [getattr(self, each.name) for each in fields(self)]


def _restore(self: Any, state: Sequence[Any]) -> None:  # noqa: ANN401 - of any class
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
