"""What the SQL itself says about paying, cut out before the rest is read.

``SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=0.1) ...``, or a comment that starts with
``noisegate:``, such as ``/* noisegate: within=50 confidence=0.95 */``, or EXPLAIN. An ε may be a
part of what is left: ``/* noisegate: epsilon=1/10 of rest */``, ``OPTIONS(epsilon='rest')``.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import pairwise
from typing import Final

from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from noisegate.desk.terms.rest import rest_of
from noisegate.desk.terms.terms import Terms
from noisegate.errors import Unsupported
from noisegate.exact import positive

_OPTIONS: Final = {
    "epsilon": "epsilon",
    "delta": "delta",
    "within": "within",
    "relative": "relative",
    "confidence": "confidence",
    "rows_per_unit": "rows_per_unit",
    "groups_per_unit": "groups_per_unit",
    "rows": "rows",
    "noise": "noise",
    "top": "top",
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
