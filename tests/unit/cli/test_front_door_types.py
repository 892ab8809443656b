"""The front door is typed: an editor can complete every term, and knows what comes of it."""

import ast
import inspect
from importlib import import_module
from pathlib import Path
from typing import Any, Unpack, get_args, get_origin, get_overloads, get_type_hints, is_typeddict

import pytest

from noisegate.gate import Gate
from noisegate.orders import RELEASES, TableOrder
from noisegate.orders.asking import Asks
from noisegate.orders.releases import ReleasePlans, Releases
from noisegate.releases.forms.table_job import KINDS, TableName
from noisegate.releases.recipes import RECIPES
from noisegate.synthetic.recipes import SYNTHESIZERS
from noisegate.synthetic.synthesis import Method

METHODS = {
    name: found
    for name, found in vars(Gate).items()
    if not name.startswith("_") and callable(found)
}
CALLED = METHODS | {"release": Releases.__call__, "release_plan": ReleasePlans.__call__}


def names_of(module):
    """What a module imports for types alone."""
    tree = ast.parse(Path(module.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {
        alias.asname or alias.name: getattr(import_module(node.module), alias.name)
        for node in imports
        for alias in node.names
    }


def hints_of(function):
    return get_type_hints(function, localns=names_of(inspect.getmodule(function)))


def parts(hint):
    yield hint
    for each in get_args(hint):
        if isinstance(each, list | tuple):
            yield from (part for one in each for part in parts(one))
        elif not isinstance(each, str | int):
            yield from parts(each)


@pytest.mark.parametrize("name", CALLED)
def test_no_method_takes_or_gives_what_no_editor_knows(name):
    variants = get_overloads(CALLED[name]) or [CALLED[name]]
    for variant in variants:
        hints = hints_of(variant)
        for parameter in list(inspect.signature(variant).parameters.values())[1:]:
            hint = hints[parameter.name]
            assert Any not in parts(hint), (name, parameter.name)
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                assert get_origin(hint) is Unpack, name
                assert is_typeddict(get_args(hint)[0]), name
                terms = get_type_hints(get_args(hint)[0])
                assert not [key for key, kind in terms.items() if kind in (Any, object)], name
        assert not {Any, object} & {*parts(hints["return"])}, name


def test_every_property_says_its_type():
    properties = {name: each for name, each in vars(Gate).items() if isinstance(each, property)}
    assert len(properties) > 5
    for name, each in properties.items():
        assert Any not in parts(hints_of(each.fget)["return"]), name


def test_every_name_of_a_release_has_a_variant_of_its_own():
    for call in (Releases.__call__, ReleasePlans.__call__):
        named = [get_args(hints_of(each)["name"]) for each in get_overloads(call)]
        assert {name for names in named for name in names} == {*get_args(TableName), *RELEASES}


def test_names_that_editors_complete_are_those_that_there_are():
    assert set(get_args(TableName)) == {*KINDS, *RECIPES}
    assert get_args(get_type_hints(TableOrder)["name"]) == get_args(TableName)
    assert set(get_args(Method)) == set(SYNTHESIZERS)


def test_the_gate_and_its_ways_to_ask_are_no_more_than_565_lines():
    assert Gate.__bases__ == (Asks,)
    assert sum(len(inspect.getsource(each).splitlines()) for each in (Gate, Asks)) <= 565
