"""Frozen classes of `noisegate.frozen` beside those of the standard library, trait by trait."""

import copy
import dataclasses
import inspect
import pickle
from dataclasses import KW_ONLY, FrozenInstanceError, field, fields, replace
from typing import ClassVar, Generic, Protocol, TypeVar, get_type_hints

import pytest

from noisegate import frozen

T = TypeVar("T")
COPIES = "std", "ours"


class Named(Protocol):
    def name(self) -> str: ...


def classes(dataclass, module):
    """The same classes, made by either."""

    @dataclass(frozen=True, slots=True)
    class Point:
        """A point."""

        x: int
        y: float = 0.5

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Told:
        kind: ClassVar[str] = "told"
        who: str
        tags: tuple[str, ...] = field(default_factory=tuple)
        hidden: int = field(default=3, repr=False, compare=False)

        def __post_init__(self):
            object.__setattr__(self, "who", self.who.upper())

    @dataclass(frozen=True, slots=True)
    class Single:
        value: object

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    @dataclass(frozen=True, slots=True, order=True)
    class Version:
        major: int
        minor: int = 0

    @dataclass(frozen=True, slots=True)
    class Own:
        value: int

        def __init__(self, value):
            object.__setattr__(self, "value", int(value))

        def __eq__(self, other):
            return isinstance(other, Own) and self.value % 7 == other.value % 7

        def __hash__(self):
            return self.value % 7

        def __repr__(self):
            return "own"

    @dataclass(frozen=True, slots=True)
    class Equal:  # noqa: PLW1641 - it is made
        """Its own equality leaves the hash to the fields."""

        value: int

        def __eq__(self, other):
            return type(other) is Equal and self.value == other.value

    @dataclass(frozen=True, slots=True, eq=False, repr=False)
    class Thing(Named):
        held: list
        _: KW_ONLY
        more: int = 1

    @dataclass(frozen=True)
    class Base(Generic[T]):
        first: T
        made: int = field(init=False, default=9)

    @dataclass(frozen=True)
    class Heir(Base[int]):
        second: int = 2

    @dataclass(frozen=True, slots=True)
    class Hashed:
        told: int
        kept: int = field(hash=False, default=0)

    found = {name: each for name, each in locals().items() if isinstance(each, type)}
    for name, each in found.items():
        each.__qualname__ = name
        each.__module__ = __name__
        globals()[f"{module}_{name}"] = each
    return found


MADE = {"std": classes(dataclasses.dataclass, "std"), "ours": classes(frozen.dataclass, "ours")}
NAMES = sorted(MADE["std"])
ARGS = {
    "Point": [((1,), {}), ((1, 2.5), {}), ((), {"y": 1.5, "x": 2})],
    "Told": [((), {"who": "ann"}), ((), {"who": "bob", "tags": ("t",), "hidden": 4})],
    "Single": [((float("nan"),), {}), (((1, 2),), {})],
    "Empty": [((), {})],
    "Version": [((1,), {}), ((1, 2), {}), ((2, 0), {})],
    "Own": [(("3",), {}), ((10,), {})],
    "Equal": [((3,), {}), ((4,), {})],
    "Thing": [(([1],), {}), (([1],), {"more": 2})],
    "Base": [((1,), {}), (("a",), {})],
    "Heir": [((1,), {}), ((1, 3), {})],
    "Hashed": [((1,), {}), ((1, 5), {})],
}


def instances(copy_, name):
    return [MADE[copy_][name](*args, **terms) for args, terms in ARGS[name]]


@pytest.mark.parametrize("name", NAMES)
def test_instances_are_as_the_standard_library_makes_them(name):
    std, ours = (instances(each, name) for each in COPIES)
    shown = [[repr(each).split(" object at ")[0] for each in made] for made in (std, ours)]
    assert shown[0] == shown[1]
    for made in zip(std, ours, strict=True):
        values = [[getattr(each, f.name) for f in fields(each)] for each in made]
        assert values[0] == values[1]
        assert hasattr(made[0], "__dict__") == hasattr(made[1], "__dict__")
    equal = [[a == b for a in made for b in (*made, 5)] for made in (std, ours)]
    assert equal[0] == equal[1]
    hashes = [[hash(a) == hash(b) for a in made for b in made] for made in (std, ours)]
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize("name", NAMES)
def test_constructors_have_the_same_signature_and_refuse_the_same(name):
    std, ours = (MADE[each][name] for each in COPIES)
    assert str(inspect.signature(std)) == str(inspect.signature(ours))
    assert std.__match_args__ == ours.__match_args__
    assert ours.__doc__ in (std.__doc__, name)  # that of an undocumented class is its name
    assert get_type_hints(std.__init__) == get_type_hints(ours.__init__)
    for made in (std, ours):
        with pytest.raises(TypeError):
            made(*range(9), unknown=1)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_an_instance_can_be_set_or_deleted(name):
    for which in COPIES:
        for one in instances(which, name):
            for each in fields(one):
                with pytest.raises(FrozenInstanceError, match=f"field '{each.name}'"):
                    setattr(one, each.name, 1)
                with pytest.raises(FrozenInstanceError):
                    delattr(one, each.name)
            with pytest.raises((FrozenInstanceError, TypeError)):  # TypeError: slots, `super`
                one.other = 1


@pytest.mark.parametrize("name", NAMES)
def test_instances_are_copied_and_pickled(name, monkeypatch):
    for which in COPIES:
        made = MADE[which][name]
        monkeypatch.setitem(globals(), name, made)
        for one in instances(which, name):
            for other in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
                held = [getattr(one, f.name) for f in fields(one)]
                assert str(held) == str([getattr(other, f.name) for f in fields(other)])
                assert type(other) is made


def test_replaced_ordered_and_inherited_as_there():
    for which in COPIES:
        made = MADE[which]
        assert replace(made["Point"](1), y=2.0) == made["Point"](1, 2.0)
        assert made["Version"](1) < made["Version"](1, 1) <= made["Version"](1, 1)
        assert made["Heir"](1).second == 2
        assert made["Heir"](1) != made["Base"](1)
        assert dataclasses.is_dataclass(made["Point"])
        assert made["Point"].__dataclass_params__.frozen
        assert dataclasses.asdict(made["Point"](3)) == {"x": 3, "y": 0.5}
        loose = type("Loose", (made["Base"],), {})
        with pytest.raises(TypeError, match="non-frozen"):
            dataclasses.dataclass(loose)


def test_each_instance_has_a_value_of_its_own_from_a_factory():
    @frozen.dataclass(frozen=True, slots=True)
    class Held:
        values: list = field(default_factory=list)

    first, second = Held(), Held()
    first.values.append(1)
    assert second.values == []


def test_what_is_not_frozen_is_the_standard_librarys():
    @frozen.dataclass(slots=True)
    class Loose:
        x: int = 1

    loose = Loose()
    loose.x = 2
    assert loose == Loose(2)
    assert Loose.__hash__ is None
