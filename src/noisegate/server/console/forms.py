"""Forms of orders, written from their JSON Schema: what a field looks like, and what it says.

A kind that the schema lists has a form; nothing here knows what a term means. What somebody typed
becomes the record of an order, and `order_from` checks it.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from noisegate.errors import SpecError
from noisegate.orders import schema

ROWS: Final = 6  # columns of a release that a form has room for
_SESSIONS: Final = ("sql", "many", "running")  # a page of its own, or a door that stays open
_FIRST: Final = ("name", "table", "columns", "where", "epsilon")
_TABLES: Final = ("histogram", "map", "series", "marginals", "table")  # names of one schema
_NUMBER: Final = {"$ref": "#/$defs/number"}
_LABELS: Final = {
    "epsilon": "Spend ε", "where": "Only rows where", "sql": "SQL, instead of columns",
    "rows_per_unit": "Rows of one person that count", "groups_per_unit": "Groups of one person",
    "delta": "δ", "within": "Be within ±", "rows": "About so many rows", "workload": "For",
    "k": "How many", "sets": "Columns of each table", "probability": "Probability of being sampled",
    "choose": "Estimate what is not declared", "gap": "Also say by how much",
    "least": "The least instead of the most", "asked": "Number", "part": "Only one part",
    "bar": "Share of the price for a ±",
}  # fmt: skip
_HINTS: Final = {
    "where": "SQL, such as age >= 18",
    "choose": "one a line: caps, bounds, keys",
    "expressions": "one a line, such as age >= 65",
    "sets": '2, or JSON: [["ward"], ["ward", "sex"]]',
    "program": '{"text": "def mean(rows): …", "name": "mean"}',
    "range": "[0, 100]",
    "model": "such as KMeans, LinearRegression, DecisionTreeClassifier",
    "options": '{"n_clusters": 3}',
    "method": "empty: chosen for you",
    "part": '{"by": "ward", "key": "north"}',
    "bar": "such as 1/3",
}
_OF_A_COLUMN: Final = ("column", "source", "target", "weight", "label")


@cache
def kinds() -> Mapping[str, Mapping[str, Any]]:
    """The schema of each order that a form can make, by the name that people use."""
    found = {name: each for name, each in schema()["$defs"].items() if "description" in each}
    table = found.pop("table")
    terms = table["properties"]
    listed = {n: {**table, "properties": terms | {"name": {"const": n}}} for n in _TABLES}
    return listed | {name: each for name, each in found.items() if name not in _SESSIONS}


def fields(kind: str, columns: list[dict[str, Any]], said: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a form: those that are asked for first, and the others."""
    known, needed = kinds()[kind]["properties"], kinds()[kind]["required"]
    made = [
        _field(name, shape, columns, said, needed=name in needed)
        for name, shape in known.items()
        if "const" not in shape and name not in ("table", "evidence")
    ]
    first = [each for each in made if each["needed"] or each["name"] in _FIRST]
    order = {name: place for place, name in enumerate(_FIRST)}
    first.sort(key=lambda each: (each["name"] == "epsilon", order.get(each["name"], 1)))
    return {"first": first, "more": [each for each in made if each not in first]}


def _field(
    name: str,
    shape: Mapping[str, Any],
    columns: list[dict[str, Any]],
    said: Mapping[str, str],
    *,
    needed: bool,
) -> dict[str, Any]:
    look = _look(name, shape)
    label = "SQL" if name == "sql" and needed else _LABELS.get(name, name.replace("_", " "))
    found: dict[str, Any] = {
        "name": name, "look": look, "needed": needed, "value": said.get(name, ""),
        "label": label.capitalize() if label.isascii() and label.islower() else label,
        "hint": _HINTS.get(name, ""),
        "choices": shape.get("enum") or [],
    }  # fmt: skip
    if look == "named":
        found["rows"] = [
            {"column": said.get(f"column {n}", ""), "by": said.get(f"by {n}", "")}
            for n in range(ROWS)
        ]
    if look == "choice" and name in _OF_A_COLUMN:
        found["choices"] = [each["name"] for each in columns]
    if look in ("named", "listed"):
        found["columns"] = columns
        found["chosen"] = [each for each in said if each.startswith(f"{name} ")]
    return found


def _look(name: str, shape: Mapping[str, Any]) -> str:  # noqa: PLR0911 - one for each shape
    """How a term is asked for."""
    shapes = [each for each in shape.get("anyOf", [shape]) if each != {"type": "null"}]
    types = [each.get("type") for each in shapes]
    if name == "columns":
        return "named" if "object" in types else "listed"
    if "enum" in shapes[0] or (name in _OF_A_COLUMN and types == ["string"]):
        return "choice"
    if types == ["boolean"]:
        return "flag"
    if types == ["integer"] or shapes == [_NUMBER]:
        return "number"
    if types == ["string"]:
        return "long" if name == "sql" else "text"
    if types == ["array"] and shapes[0].get("items") == {"type": "string"}:
        return "lines"
    return "json"


def record(kind: str, said: Mapping[str, str]) -> dict[str, Any]:
    """What a form says, as the record of an order. What is empty is as usual."""
    known = kinds()[kind]["properties"]
    fixed = {name: shape["const"] for name, shape in known.items() if "const" in shape}
    table = {"table": said["table"]} if "table" in known and said.get("table") else {}
    made = {name: _value(name, _look(name, shape), said) for name, shape in known.items()
            if name not in fixed and name not in ("table", "evidence")}  # fmt: skip
    if made.get("sql") and "columns" in made and not made["columns"]:
        table = {}  # the SQL names its own
    return fixed | table | {name: value for name, value in made.items() if value is not None}


def _value(name: str, look: str, said: Mapping[str, str]) -> Any:  # noqa: ANN401, PLR0911 - of a record, one for each look
    if look == "named":
        rows = ((said.get(f"column {n}", ""), said.get(f"by {n}", "")) for n in range(ROWS))
        return {column: _by(by.strip()) for column, by in rows if column} or None
    if look == "listed":
        mark = f"{name} "
        return [each.removeprefix(mark) for each in said if each.startswith(mark)] or None
    text = said.get(name, "").strip()
    if not text:
        return None
    if look == "flag":
        return text == "yes"
    if look == "lines":
        return [each.strip() for each in text.splitlines() if each.strip()]
    if look == "number" and text.lstrip("-").isascii() and text.lstrip("-").isdigit():
        return int(text)
    return _json(name, text) if look == "json" else text


def _by(text: str) -> Any:  # noqa: ANN401 - as `columns` of a release have it
    """How a column is grouped.

    >>> _by(""), _by("5"), _by("0.5"), _by("0:18:65"), _by("month")
    (None, 5, 0.5, [0, 18, 65], 'month')
    """
    if ":" in text:
        return [_by(part.strip()) for part in text.split(":")]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None


def _json(name: str, text: str) -> Any:  # noqa: ANN401 - of a record
    """A term of many shapes: JSON, or plain words where it does not look like that."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if text[0] in '[{"':
            raise SpecError(
                f"{name} cannot be read as JSON.",
                fix="Check its brackets and quotes.",
                about="json",
            ) from None
        return text


def said_by(kind: str, order: Mapping[str, Any]) -> dict[str, str]:
    """The fields that would make an order again."""
    found: dict[str, str] = {}
    known = kinds()[kind]["properties"]
    for name, value in order.items():
        if name not in known or "const" in known[name] or value is None:
            continue
        look = "text" if name == "table" else _look(name, known[name])
        if look == "named" and isinstance(value, Mapping):
            for n, (column, by) in enumerate(list(value.items())[:ROWS]):
                found |= {f"column {n}": column, f"by {n}": _shown_by(by)}
        elif look == "named":
            found |= {f"column {n}": str(column) for n, column in enumerate(value[:ROWS])}
        elif look == "listed":
            found |= {f"{name} {column}": "1" for column in value}
        elif look == "lines":
            found[name] = "\n".join(map(str, value))
        elif look == "flag":
            found[name] = "yes" if value else "no"
        else:
            found[name] = value if isinstance(value, str) else json.dumps(value)
    return found


def _shown_by(by: object) -> str:
    if by is None:
        return ""
    return ":".join(map(str, by)) if isinstance(by, list | tuple) else str(by)
