"""How much free SQL may make of a few letters.

The engine looks at the clock and at its memory between a few thousand values, so what it does for
one value must be little. Texts are padded, replaced, compared and matched by macros in place of its
functions, which refuse long ones. Columns are few where the engine writes them out wherever they
are named, such as x in ``SELECT x || x AS x FROM (SELECT x || x AS x FROM …)``.
"""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from noisegate.errors import Unsupported

if TYPE_CHECKING:
    import duckdb

_LIMIT: Final = (  # {0} is named once: in macros within macros it would be there 2, 4, 8, … times
    "list_transform([{0}], lambda e:"
    " CASE WHEN {1} > {2} THEN error('{3} is above {2}') ELSE e END)[1]"
)
_LIMITS: Final = {  # by the letters below
    "n": ("e", 10_000, "the length to pad to"),
    "s": ("length(e)", 1_000_000, "the length of a text to replace in"),
    "r": ("length(e)", 100, "the length of a replacement"),
    "v": ("length(e)", 1000, "the length of a text to compare"),
    "w": ("length(e)", 1000, "the length of a text to compare"),
    "x": ("length(e)", 100_000, "the length of a text to match"),
}
_LIMITED: Final = {  # macros in place of functions of the same names, by what each is called with
    **dict.fromkeys(("lpad", "rpad"), ("s {n} c",)),
    "replace": ("{s} a {r}",),
    "regexp_replace": ("{s} p {r}", "{s} p {r} o"),
    **dict.fromkeys(("levenshtein", "editdist3", "damerau_levenshtein"), ("{v} {w}",)),
    **dict.fromkeys(("jaro_similarity", "jaro_winkler_similarity"), ("{v} {w}", "{v} {w} o")),
    **dict.fromkeys(("regexp_matches", "regexp_full_match"), ("{x} p", "{x} p o")),
    **dict.fromkeys(("regexp_extract", "regexp_extract_all"), ("{x} p", "{x} p g", "{x} p g o")),
    **dict.fromkeys(
        ("string_split_regex", "str_split_regex", "regexp_split_to_array"), ("{x} p", "{x} p o")
    ),
}
_FORMATS: Final = frozenset({"format", "printf"})
_WIDE: Final = re.compile(r"(?:%[^%a-zA-Z]*|\{[^{}]*)(?:[0-9]{4}|[*{])")  # or from a value
_TWICE: Final = frozenset({"fmod", "nullif", "split_part", "array_to_string"})  # of their arguments
_WRITTEN_MAX: Final = 20_000
_ANY: Final = "*"  # the largest of all items so far, which may have any name


def add_limits(engine: "duckdb.DuckDBPyConnection") -> None:
    """Put the macros in place of the engine's functions."""
    limits = {name: _LIMIT.format(name, *each) for name, each in _LIMITS.items()}
    for name, forms in _LIMITED.items():
        macros = []
        for form in forms:
            letters = ", ".join(each.strip("{}") for each in form.split())
            called = ", ".join(form.split()).format(**limits)
            macros.append(f"({letters}) AS system.main.{name}({called})")
        engine.execute(f"CREATE MACRO {name}{', '.join(macros)}")


def parsed(engine: "duckdb.DuckDBPyConnection", sql: str) -> dict[str, Any]:
    """A text in the words of the engine's own parser: its ``statements``, or an error."""
    ((text,),) = engine.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    found: dict[str, Any] = json.loads(text)
    return found


def nodes_of(tree: object) -> list[dict[str, Any]]:
    """Every node of parsed statements."""
    found, rest = [], [tree]
    while rest:
        for node in _below(rest.pop()):
            found.append(node)
            called = node.get("type") == "TABLE_FUNCTION"
            rest.append(node["function"]["arguments"] if called else [*node.values()])
    return found


def _below(tree: object) -> list[dict[str, Any]]:
    """The next nodes, in their order."""
    found, rest = [], [tree]
    while rest:
        each = rest.pop()
        if isinstance(each, list):
            rest += reversed(each)
        elif isinstance(each, dict):
            found.append(each)
    return found


def require_small(statements: object) -> None:
    """Refuse parsed statements that make a few letters huge."""
    nodes = nodes_of(statements)
    for node in nodes:
        _require_short(node)
    if _written(statements, {}) > _WRITTEN_MAX + len(nodes):
        raise Unsupported(
            "Columns that are made of columns grow too large when they are written out.",
            fix="Name each such column fewer times.",
            about="growth",
        )


def _require_short(node: Mapping[str, Any]) -> None:
    """Refuse what makes a few letters huge, and what goes round `_LIMITED`."""
    name = str(node.get("function_name") or "").lower()
    if name in _LIMITED and len(node["qualified_name"]["path"]) > 1:
        raise Unsupported(
            f"The function {name!r} is called by a longer name.",
            fix=f"Write {name}(…).",
            about="function",
        )
    if name in _FORMATS and node["arguments"]:
        said = node["arguments"][0]["expression"].get("literal") or {}
        if said.get("kind") != "STRING" or _WIDE.search(said["text"].replace("{{", "")):
            raise Unsupported(
                f"The format of {name} is not a plain text, or it has a wide field.",
                fix="Write the format itself, with widths below 1000.",
                about="format",
            )
    if node.get("materialized") == "CTE_MATERIALIZE_NEVER":
        raise Unsupported("NOT MATERIALIZED is not supported.", fix="Leave it out.", about="cte")


def _written(tree: object, items: dict[str, int]) -> int:
    """At most how many nodes the engine makes of a tree: it writes out ``items``, by their names.

    Tables come before what is selected from them, and an item before the next one, which may name
    it. A name that several tables have stands for the last.
    """
    total = 0
    for node in _below(tree):
        if node.get("type") == "COLUMN_REF":
            total += items.get(node["column_names"][-1].lower(), 1)
            continue
        rest = dict(node)
        size = 1 + _written([rest.pop(key, None) for key in ("cte_map", "from_table")], items)
        for item in rest.pop("select_list", ()):
            items[item["alias"].lower()] = shown = _written(item, items)
            items[_ANY] = max(shown, items.get(_ANY, 1))
            size += shown
        size += _written([*rest.values()], items)
        for name in (*node.get("aliases", ()), *node.get("column_name_alias", ())):
            items[name.lower()] = items.get(_ANY, 1)
        total += 2 * size if str(node.get("function_name")).lower() in _TWICE else size
    return total
