r"""A policy's text with another budget or share. What a person wrote around it stays as it was.

>>> text = "[budget] # for ever\nepsilon = 4  # agreed\n[analysts]\nana = 2\n"
>>> print(amended(text, ("budget", "epsilon"), Decimal("6.5")), end="")
[budget] # for ever
epsilon = 6.5  # agreed
[analysts]
ana = 2
>>> print(amended(text, ("analysts", "kim"), {"epsilon": 1, "every": "month"}).splitlines()[-1])
kim = { epsilon = 1, every = "month" }
"""

import json
import re
import tomllib
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Final

from noisegate.errors import PolicyError

_HEADER: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?$")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")


def amended(text: str, place: tuple[str, str], value: object) -> str:
    """The text with a value at a key of a table. Refused where that would change anything else."""
    table, key = place
    lines, at = text.splitlines(keepends=True), None
    end = "\n"
    for number, line in enumerate(lines):
        found = _HEADER.match(line.rstrip("\r\n"))
        if found is not None:
            inside = found[1] == table
            at = number if inside else at
        elif at is not None and inside and (told := _value(line, key)) is not None:
            lines[number] = f"{line[: told[0]]}{_written(value)}{line[told[1] :]}"
            return _checked(text, "".join(lines), place, value)
    if at is not None:
        last = max(
            n for n in range(at, len(lines)) if _section(lines, n) == at and lines[n].strip()
        )
        ended = "" if lines[last].endswith("\n") else end
        lines.insert(last + 1, f"{ended}{_name(key)} = {_written(value)}{end}")
    return _checked(text, "".join(lines), place, value)


def _section(lines: list[str], number: int) -> int:
    """The number of the header that a line stands below."""
    heads = [n for n in range(number + 1) if lines[n].lstrip().startswith("[")]
    return heads[-1] if heads else -1


def _value(line: str, key: str) -> tuple[int, int] | None:
    """Where the value of a key begins and ends in its line."""
    names = "|".join(re.escape(each) for each in {key, _name(key)})
    found = re.match(rf"\s*(?:{names})\s*=\s*", line)
    if found is None:
        return None
    rest, depth, quoted = line[found.end() :], 0, ""
    for place, mark in enumerate(rest):
        if quoted:
            quoted = "" if mark == quoted else quoted
        elif mark in "\"'":
            quoted = mark
        elif mark in "{[":
            depth += 1
        elif mark in "}]":
            depth -= 1
        elif depth == 0 and mark in "#\r\n":
            return found.end(), found.end() + len(rest[:place].rstrip())
    return found.end(), found.end() + len(rest.rstrip())


def _checked(old: str, new: str, place: tuple[str, str], value: object) -> str:
    """Refuse an edit that says anything but what was meant."""
    wanted = tomllib.loads(old, parse_float=Decimal)
    wanted.setdefault(place[0], {})[place[1]] = value
    try:
        said = tomllib.loads(new, parse_float=Decimal)
    except tomllib.TOMLDecodeError:
        said = {}
    if said != wanted:
        raise PolicyError(
            f"{place[0]}.{place[1]}: the policy is not written in a way that can be changed here.",
            fix="Change it in the file, then run: noisegate ledger budget, and start the service "
            "again.",
            about="amend",
        )
    return new


def _written(value: object) -> str:
    """A value as TOML has it."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_name(k)} = {_written(v)}' for k, v in value.items())} }}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value) if isinstance(value, int | date) else json.dumps(value)


def _name(key: str) -> str:
    return key if _PLAIN.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def share_with(old: Any, **terms: Any) -> Any:  # noqa: ANN401 - as a policy has it
    """A share with other terms; what is None is left out, and an ε alone is a number.

    >>> share_with(2, epsilon=3, every=None)
    3
    >>> share_with({"epsilon": 1, "delta": 0}, epsilon=2, every="week")
    {'epsilon': 2, 'delta': 0, 'every': 'week'}
    """
    before = dict(old) if isinstance(old, Mapping) else {}
    found = {name: v for name, v in (before | terms).items() if v is not None}
    return found["epsilon"] if found.keys() == {"epsilon"} else found
