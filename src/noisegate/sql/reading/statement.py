"""SQL text to a tree: one SELECT, not too deep, whose names are its own; and free SQL back to text.

PIVOT becomes what it means: one column with a FILTER for each value that it lists. What the SQL
itself says about paying is cut out before the rest is read:
``SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=0.1) ...``, or a comment that starts with
``noisegate:``, such as ``/* noisegate: within=50 confidence=0.95 */``, or EXPLAIN. An ε may be a
part of what is left: ``/* noisegate: epsilon=1/10 of rest */``, ``OPTIONS(epsilon='rest')``.
"""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from noisegate.desk.terms.terms import Terms, rest_of
from noisegate.errors import Unsupported
from noisegate.exact import positive
from noisegate.sql.question import Block
from noisegate.sql.reading.literals import literal
from noisegate.sql.reading.sight import item_of, plain_name
from noisegate.sql.reading.words import FORM, Node, attempt, fold

_NAMES: Final = (
    "epsilon", "delta", "within", "relative", "confidence", "rows_per_unit", "groups_per_unit",
    "rows", "noise", "top",
)  # fmt: skip
_OPTIONS: Final = {
    **dict(zip(_NAMES, _NAMES, strict=True)),
    "max_rows_contributed": "rows_per_unit",
    "max_groups_contributed": "groups_per_unit",
}
_WHOLE: Final = ("rows", "rows_per_unit", "groups_per_unit", "top")
_HINT: Final = "noisegate:"
_OF_REST: Final = re.compile(r"\s+of\s+(?:the\s+)?rest\b", re.IGNORECASE)


def take_hints(sql: str) -> tuple[str, Terms, bool]:
    """The SQL without hints, the terms they state, and whether EXPLAIN was said."""
    tokens = _tokens(sql)
    explain = bool(tokens) and tokens[0].text.upper() == "EXPLAIN"
    said: list[tuple[str, str]] = []
    if explain:
        said += _from_comments(tokens[:1])
        sql = " " * (tokens[0].end + 1) + sql[tokens[0].end + 1 :]
        tokens = _tokens(sql)
        if tokens and tokens[0].text.upper() == "ANALYZE":
            raise Unsupported(
                "EXPLAIN ANALYZE would run the query.", fix="Use EXPLAIN.", about="explain"
            )
    said += _from_comments(tokens)
    for place in range(len(tokens) - 2):
        words = [token.text.upper() for token in tokens[place : place + 3]]
        if words == ["SELECT", "WITH", "DIFFERENTIAL_PRIVACY"] and not any(
            token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
            for token in tokens[place : place + 3]
        ):
            end, options = _from_options(tokens, place + 3)
            said += options
            first, last = tokens[place + 1].start, tokens[end - 1].end
            sql = sql[:first] + " " * (last + 1 - first) + sql[last + 1 :]
    return sql, _terms(said), explain


def _tokens(sql: str) -> list[Token]:
    try:
        tokens = DuckDB().tokenize(sql)
    except SqlglotError:
        tokens = None
    if tokens is None:
        raise Unsupported("The SQL cannot be read.", fix="Check quotes and parentheses.")
    for one, other in pairwise(tokens):
        glued = one.token_type is TokenType.NUMBER and other.start == one.end + 1
        if glued and other.token_type in (TokenType.VAR, TokenType.NUMBER):
            raise Unsupported(
                f"{one.text}{other.text} is not a number.",
                fix="Write a decimal number, with spaces around it.",
                about="number",
            )
    return tokens


def _from_comments(tokens: Iterable[Token]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for comment in (comment for token in tokens for comment in token.comments):
        text = comment.strip()
        if not text.lower().startswith(_HINT):
            continue
        said = _OF_REST.sub("_of_rest", text[len(_HINT) :])
        for part in said.replace(",", " ").split():
            name, equals, value = part.partition("=")
            if not equals or not value:
                raise Unsupported(
                    f"The hint {part!r} is not name=value.",
                    fix="Write epsilon=0.1.",
                    about="option",
                )
            found.append((name, value))
    return found


def _from_options(tokens: list[Token], place: int) -> tuple[int, list[tuple[str, str]]]:
    """OPTIONS(name = value, ...) and the place of the token after it."""
    found: list[tuple[str, str]] = []
    if place >= len(tokens) or tokens[place].text.upper() != "OPTIONS":
        return place, found
    texts = [token.text for token in tokens[place + 1 :]]
    if not texts or texts[0] != "(" or ")" not in texts:
        raise Unsupported(
            "OPTIONS has no parentheses.", fix="Write OPTIONS(epsilon=0.1).", about="option"
        )
    inside = texts[1 : texts.index(")")]
    for start in range(0, len(inside), 4):
        part = inside[start : start + 4]
        if len(part) < 3 or part[1] != "=" or part[3:] not in ([], [","]):
            raise Unsupported(
                "OPTIONS is not a list of name=value.", fix="Write epsilon=0.1.", about="option"
            )
        found.append((part[0], part[2]))
    return place + 1 + texts.index(")") + 1, found


def _option(name: str) -> str:
    if name.lower() == "purpose":  # it decides who pays, which SQL does not
        raise Unsupported(
            "A purpose is not said in the SQL.",
            fix="Say it beside the question: purpose= where the gate is opened, --purpose, "
            '"purpose" of the order, or SET noisegate.purpose of a Postgres client.',
            about="purpose",
        )
    option = _OPTIONS.get(name.lower())
    if option is None:
        near = get_close_matches(name.lower(), _OPTIONS, n=1) or sorted(_OPTIONS)
        raise Unsupported(
            f"There is no option {name!r}.", fix=f"Use {', '.join(near)}.", about="option"
        )
    return option


def _terms(said: Iterable[tuple[str, str]]) -> Terms:
    found: dict[str, str] = {}
    for name, value in said:
        option = _option(name)
        if found.setdefault(option, value) != value:
            raise Unsupported(f"{option} is given twice.", fix="Give it once.", about="twice")
    terms: dict[str, object] = {}
    for option, value in found.items():
        if option == "epsilon" and (rest := rest_of(value.strip("'\""))) is not None:
            terms[option] = rest
            continue
        if option == "noise":
            terms[option] = value.strip("'\"").lower()
            continue
        number = positive(value, name=option)
        if option in _WHOLE:
            if number.denominator != 1:
                raise Unsupported(
                    f"{option} is not a whole number.", fix="Use a whole number.", about="whole"
                )
            terms[option] = int(number)
        else:
            terms[option] = number
    if terms.get("confidence", 0) >= 1:  # type: ignore[operator]
        raise Unsupported(
            "confidence must be below 1.", fix="For example: 0.95.", about="confidence"
        )
    return Terms(**terms)  # type: ignore[arg-type]


_DEPTH_MAX: Final = 100
_RESERVED: Final = re.compile(r"noisegate_\d+", re.ASCII)


def statement_of(sql: str) -> Node:
    """The one SELECT that the text is, in a form that can be rewritten."""
    try:
        found = [tree for tree in sqlglot.parse(sql, dialect="duckdb") if tree is not None]
    except (SqlglotError, RecursionError):
        found = None
    if found is None:
        raise Unsupported("The SQL cannot be read.", fix=FORM, about="syntax")
    if len(found) != 1:
        raise Unsupported(
            f"There are {len(found)} statements.",
            fix="Ask one question at a time.",
            about="statements",
        )
    found[0] = flattened(found[0])
    if not isinstance(found[0], exp.Query):
        raise Unsupported(
            f"Only SELECT is answered, not {found[0].key.upper()}.", fix=FORM, about="select"
        )
    nodes, level = [], [found[0]]
    for _ in range(_DEPTH_MAX):
        nodes += level
        level = [child for node in level for child in node.iter_expressions()]
    if any(isinstance(node, exp.Select) and not node.expressions for node in nodes):
        raise Unsupported("SELECT has no columns.", fix=FORM, about="select-list")
    if level:
        raise too_deep()
    for name in nodes:
        if isinstance(name, exp.Identifier) and _RESERVED.fullmatch(fold(name.name)):
            raise Unsupported(
                f"The name {name.name!r} is reserved.", fix="Use another name.", about="name"
            )
    has_places = any(isinstance(node, exp.Bracket) for node in nodes)
    return found[0].transform(_extracted, copy=False) if has_places else found[0]


def _extracted(node: Node) -> Node:
    """Write x[1] as a call: the parser counts from 0 or 1 by a type that rewriting may change."""
    if not isinstance(node, exp.Bracket) or len(node.expressions) != 1:
        return node
    if isinstance(node.expressions[0], exp.Slice) or node.expressions[0].is_string:
        return node
    inner, whole = node.this.sql(dialect="duckdb"), node.sql(dialect="duckdb")
    try:
        place = sqlglot.parse_one(whole.removeprefix(inner)[1:-1], dialect="duckdb")
    except SqlglotError:
        raise Unsupported("The SQL cannot be read.", fix=FORM, about="syntax") from None
    return exp.Anonymous(this="array_extract", expressions=[node.this, place])


def too_deep() -> Unsupported:
    """The refusal of SQL that nobody can follow."""
    return Unsupported(
        "The SQL is nested too deeply.", fix="Use IN for long lists of OR.", about="depth"
    )


_FORM = "Write PIVOT t ON x IN ('a', 'b') USING COUNT(*) GROUP BY y."


def flattened(statement: Node) -> Node:
    """The statement with a SELECT in place of every PIVOT that lists values and names groups."""
    for source in list(statement.find_all(exp.Subquery, exp.Table)):
        pivots: list[exp.Pivot] = source.args.get("pivots") or []
        if len(pivots) == 1:
            pivot, alias = pivots[0], source.args.get("alias")
            source.set("pivots", None)
            source.set("alias", None)
            made = _select(pivot, source.copy(), pivot.args["fields"], "expressions")
            source.replace(exp.Subquery(this=made, alias=alias))
    if isinstance(statement, exp.Pivot):
        return _select(statement, statement.this, statement.expressions, "using")
    for pivot in list(statement.find_all(exp.Pivot)):
        pivot.replace(_select(pivot, pivot.this, pivot.expressions, "using"))
    return statement


def _select(pivot: exp.Pivot, source: Node, on: list[Node], computed: str) -> exp.Select:
    calls = pivot.args.get(computed) or []
    if pivot.args.get("unpivot") or len(on) != 1 or not isinstance(on[0], exp.In):
        raise Unsupported(
            "PIVOT without a list of values would take its columns from the rows.", fix=_FORM
        )
    group = pivot.args.get("group")
    groups = _others(source, [on[0].this, *calls]) if group is None else group.expressions
    if groups is None or not calls or pivot.args.get("include_nulls"):
        raise Unsupported(
            "PIVOT without GROUP BY would group by all other columns.", fix=_FORM, about="pivot"
        )
    items = [each.copy() for each in groups]
    for value in on[0].expressions:
        known = attempt(lambda value=value: literal(value.unalias()))  # type: ignore[misc]
        if known is None or known.value is None:
            raise Unsupported("PIVOT lists something other than values.", fix=_FORM)
        inner = value.unalias()
        plain = isinstance(inner, exp.Literal | exp.Cast)
        shown = value.alias or (inner.name if plain else inner.sql(dialect="duckdb").lower())
        where = exp.Where(this=exp.EQ(this=on[0].this.copy(), expression=value.unalias().copy()))
        for call in calls:
            if len(calls) > 1 and not call.alias:
                raise Unsupported(
                    "PIVOT has several aggregates without names.", fix="Name them with AS."
                )
            name = f"{shown}_{call.alias}" if call.alias else shown
            kept = exp.Filter(this=call.unalias().copy(), expression=where.copy())
            items.append(exp.alias_(kept, name, quoted=True))
    by = exp.Group(expressions=[each.copy() for each in groups]) if groups else None
    return exp.Select(expressions=items, from_=exp.From(this=source), group=by)


def _others(source: Node, used: list[Node]) -> list[Node] | None:
    """The columns of a sub-query that PIVOT does not name, if it lists its columns."""
    inner = source.this if isinstance(source, exp.Subquery) else None
    if not isinstance(inner, exp.Select) or any(item.is_star for item in inner.expressions):
        return None
    names = [item.output_name for item in inner.expressions]
    taken = {column.name.lower() for node in used for column in node.find_all(exp.Column)}
    if not all(names):
        return None
    return [exp.column(name, quoted=True) for name in names if name.lower() not in taken]


def free_sql(node: Node, *, is_plain: bool) -> str:
    """The text of free SQL, read again: the parser reads more than it can write."""
    try:
        text = node.sql(dialect="duckdb", comments=False)
        if not is_plain:
            sqlglot.parse_one(text, dialect="duckdb")
    except (SqlglotError, RecursionError):
        text = None
    if text is None:
        raise Unsupported("The SQL cannot be read.", fix=FORM, about="syntax")
    return text


def picked_columns(node: Node) -> tuple[str, ...] | None:
    """The columns that a SELECT shows from a table and does nothing to."""
    said = {name for name, arg in node.args.items() if arg}
    items = [item.unalias() for item in node.expressions]
    is_plain = said == {"expressions", "from_"} and all(type(i) is exp.Column for i in items)
    if not is_plain or type(node.args["from_"].this) is not exp.Table:
        return None
    return tuple(item.name for item in items)


def over_groups(node: Node, blocks: list[Block]) -> tuple[str, ...]:
    """What is computed over groups is about those that are shown, and the answer says so."""
    sums = (each for each in node.find_all(exp.AggFunc) if not isinstance(each.parent, exp.Window))
    if next(sums, None) is None:
        return ()
    keys = [key for block in blocks for key in block.by]
    found = []
    if any(key.domain.keys is None for key in keys):
        found.append("Rare groups are not found: results computed over groups leave them out.")
    if any(key.domain.keys is not None for key in keys):
        found.append("Results computed over groups include declared groups without rows.")
    return tuple(found)


def renamed(
    columns: tuple[str, ...] | None, alias: exp.TableAlias | None
) -> tuple[str, ...] | None:
    """The columns as FROM ... AS alias(columns) names them."""
    given = tuple(one.name for one in (alias.args.get("columns") if alias else None) or ())
    return columns if columns is None else (*given, *columns[len(given) :])


def shown_names(
    node: exp.Select, sources: Sequence[tuple[str, ...] | None]
) -> tuple[str, ...] | None:
    """The names of the columns of free SQL, where they can be told before it runs."""
    names: list[str] = []
    for item in node.expressions:
        inner = item_of(item)
        if inner.is_star:
            star = inner.this if isinstance(inner, exp.Column) else inner
            alone = sources[0] if len(sources) == 1 else None
            if alone is None or any(star.args.values()):
                return None
            names += alone
        elif isinstance(inner, exp.Columns):
            return None
        else:
            names.append(item.alias or plain_name(item))
    return tuple(names)


def name_items(node: Node, columns: tuple[str, ...] | None) -> None:
    """Give the items of the last SELECT the names that the answer shows."""
    while isinstance(node, exp.SetOperation | exp.Subquery):
        node = node.this
    if columns is None or len(columns) != len(node.expressions):
        return
    items = [
        item if item.alias or item.is_star else exp.alias_(item, name, quoted=True)
        for item, name in zip(node.expressions, columns, strict=True)
    ]
    node.set("expressions", items)
