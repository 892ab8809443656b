"""The form of a policy file: its JSON Schema, and the refusal of whatever does not fit it.

`policy.schema.json` is the only list of keys. Editors complete from it, the reader checks with it.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, Final

from noisegate.errors import PolicyError

_WORDS: Final = {
    "object": "a table",
    "array": "a list",
    "string": "text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "date": "a date",
    "date-time": "a time without zone",
}
_LIMITS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "minimum": lambda value, limit: value >= limit,
    "exclusiveMinimum": lambda value, limit: value > limit,
    "maximum": lambda value, limit: value <= limit,
    "exclusiveMaximum": lambda value, limit: value < limit,
    "minLength": lambda value, limit: len(value) >= limit,
    "maxLength": lambda value, limit: len(value) <= limit,
    "minItems": lambda value, limit: len(value) >= limit,
    "maxItems": lambda value, limit: len(value) <= limit,
    "uniqueItems": lambda value, _: len(set(value)) == len(value),
    "pattern": lambda value, form: re.fullmatch(form, value) is not None,
    "enum": lambda value, allowed: value in allowed,
    "const": lambda value, only: value is only,
}


@cache
def _schema_text() -> str:
    return files(__package__).joinpath("policy.schema.json").read_text(encoding="utf-8")


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a policy file, with a description for every key.

    >>> schema()["properties"]["budget"]["required"]
    ['epsilon']
    """
    found: dict[str, Any] = json.loads(_schema_text())
    return found


def require_form(policy: Mapping[str, Any]) -> None:
    """Refuse a file with an unknown key, a missing one or a value of another sort.

    >>> require_form({"name": "clinic", "budget": {"epsilom": 1}, "tables": {}})
    Traceback (most recent call last):
    noisegate.errors.PolicyError: budget: there is no key 'epsilom'. Did you mean 'epsilon'?
    """
    whole = schema()
    _Form(whole["$defs"]).require(policy, whole, "")


def nearest(name: str, known: Iterable[str]) -> str:
    """What to write instead: the nearest known name, or all of them."""
    names = list(known)
    if close := get_close_matches(name, names, n=1):
        return f"Did you mean {close[0]!r}?"
    return f"Known are: {', '.join(names)}." if names else "There are none here."


class _Form:
    """The keywords of JSON Schema that `policy.schema.json` uses."""

    def __init__(self, shared: Mapping[str, Any]) -> None:
        self._shared = shared

    def require(self, value: Any, form: Mapping[str, Any], place: str) -> None:  # noqa: ANN401
        if "$ref" in form:
            form = self._shared[form["$ref"].rpartition("/")[2]]
        fitting = next((one for one in form.get("anyOf", [form]) if _fits(value, one)), None)
        if fitting is None:
            raise _refused(place, f"is not {_expected(form)}", form)
        if isinstance(value, dict) and "additionalProperties" in fitting:
            self._require_keys(value, fitting, place)
        if isinstance(value, list) and "items" in fitting:
            for at, item in enumerate(value):
                self.require(item, fitting["items"], f"{place}[{at}]")
        for keyword, holds in _LIMITS.items():
            if keyword in fitting and not holds(value, fitting[keyword]):
                raise _refused(place, "is not one of the allowed values", form)

    def _require_keys(self, value: Mapping[str, Any], form: Mapping[str, Any], place: str) -> None:
        known, others = form.get("properties", {}), form["additionalProperties"]
        for key, item in value.items():
            if key not in known and others is False:
                raise PolicyError(
                    f"{place or 'policy'}: there is no key {key!r}.", fix=nearest(key, known)
                )
            self.require(item, known.get(key, others), f"{place}.{key}" if place else key)
        tied = form.get("dependentRequired", {})
        needed = [*form.get("required", ()), *(one for key in value for one in tied.get(key, ()))]
        for key in needed:
            if key not in value:
                raise PolicyError(f"{place or 'policy'}: {key!r} is missing.", fix=_fix(known[key]))


def _fits(value: Any, form: Mapping[str, Any]) -> bool:  # noqa: ANN401 - whatever TOML holds
    if "type" not in form:  # enum and const say enough
        return True
    sorts: dict[str, bool] = {
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": type(value) is int,
        "number": type(value) is int or (isinstance(value, Decimal) and value.is_finite()),
        "date": type(value) is date,
        "date-time": isinstance(value, datetime) and value.tzinfo is None,
    }
    return sorts[form.get("format", form["type"])]


def _expected(form: Mapping[str, Any]) -> str:
    forms = form.get("anyOf", [form])
    return " or ".join(_WORDS[one.get("format", one["type"])] for one in forms)


def _refused(place: str, why: str, form: Mapping[str, Any]) -> PolicyError:
    return PolicyError(f"{place}: this {why}.", fix=_fix(form))


def _fix(form: Mapping[str, Any]) -> str:
    allowed, examples = form.get("enum"), form.get("examples")
    if allowed:
        return f"{form['description']} One of: {', '.join(allowed)}."
    example = f" Such as {json.dumps(examples[0])}." if examples else ""
    return f"{form['description']}{example}"
