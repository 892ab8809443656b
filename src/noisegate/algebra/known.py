"""Facts that were worked out about a tree, kept for as long as it is likely asked about."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

Node = TypeVar("Node")
Terms = ParamSpec("Terms")
Fact = TypeVar("Fact")
_KEPT: Final = 256


def remembered(
    rule: Callable[Concatenate[Node, Terms], Fact],
) -> Callable[Concatenate[Node, Terms], Fact]:
    """The rule, asked once about each tree: trees never change, nor do their facts.

    A question is checked, priced and written from one tree, and every step asks about all of it
    again. Kept by identity, together with the tree, so that no other can have its address: equal
    trees need not be alike, since 1 equals True. A refusal is not kept. Public facts alone: what a
    rule reads is the tree, never rows.
    """
    known: dict[object, tuple[Node, Fact]] = {}

    @wraps(rule)
    def fact(node: Node, /, *args: Terms.args, **terms: Terms.kwargs) -> Fact:
        name = (id(node), args, *terms.items())
        held = known.get(name)
        if held is not None:
            return held[1]
        found = rule(node, *args, **terms)
        if len(known) >= _KEPT:
            known.clear()
        known[name] = node, found
        return found

    return fact
