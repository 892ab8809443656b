"""What questions must keep, whoever asks them: DuckDB's meaning, and the claim of their sensitivity."""

import re
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from functools import cache
from math import isfinite
from types import MappingProxyType, SimpleNamespace
from unittest.mock import patch

import duckdb
import sqlglot
from fuzz_target import Finding
from hard_worlds import world
from reading_oracle import OWNERS, exact_answer, same_rows
from sqlglot import exp
from test_sensitivity import collected, require_claim

from noisegate.algebra.relation import keyed
from noisegate.transforms.stability import stability_of

LIMITED = re.compile(r"\b(LIMIT|OFFSET|OVER|QUALIFY|SAMPLE|TABLESAMPLE|ANY_VALUE|MODE|FIRST|LAST|ARG_\w+|ARRAY_AGG|LIST|STRING_AGG|GROUP_CONCAT|APPROX\w*|TOP|COUNT_?IF)\b", re.IGNORECASE)  # fmt: skip
ENDLESS = re.compile(
    r"\b(LN|LOG\w*|EXP|POW\w*|SQRT)\b|\^|\*\*|1e308|1e999", re.IGNORECASE
)  # may be infinite: NULL here
MINE = {  # the owner of each row of the hard tables
    "patients": "SELECT * REPLACE (income::DOUBLE AS income), patient_id AS _owner FROM patients",
    "prescriptions": "SELECT r.*, v.patient_id AS _owner FROM prescriptions r JOIN visits v USING (visit_id)",
}


def require_claims(gate, plan, world):
    """Without a unit, exact numbers move by at most the claim."""
    source = gate._curator._source
    for bought in plan.expected.bought:
        asked_first = (each.query for each in bought.keys)
        for query in (*asked_first, *(part.query for part in bought.draft.parts)):
            asked = with_coins(query)
            here = collected(source, asked)
            for other in world.neighbours:
                try:
                    require_claim(query, None, here, collected(other, asked))
                except AssertionError as error:
                    raise Finding("SENSITIVITY above the claim", repr(query.tally)) from error


def with_coins(query):
    """The query as the source is asked it: which units are in a sample is decided.

    Where every row is a unit, coins go by the place of a row, and those of neighbours are others:
    a sample is then any rows at all, and its claim that of the rows.
    """
    if query.sample is None:
        return query
    if stability_of(query.tally.relation).is_row_level:
        rows = replace(query.tally, relation=query.tally.relation.of)
        return SimpleNamespace(tally=rows, strategy=query.strategy)
    decided = replace(query.tally, relation=keyed(query.tally.relation, "5eed" * 8))
    return SimpleNamespace(tally=decided, strategy=query.strategy)


def meaning_of(world, sql, tables):
    """Names and rows by DuckDB, which the reading of the SQL agrees with; None where it cannot say."""
    if LIMITED.search(sql):
        return None
    with connection_of(world.name, world.seed).cursor() as con:
        try:
            result = con.execute(plain(sql))
            names, expected = [each[0] for each in result.description], result.fetchall()
        except (duckdb.Error, UnicodeError, OverflowError, ValueError):
            return None  # a cast that fails, an overflow: NULL here
        if not all(map(is_plain, expected)):
            return None
        try:
            with patch.dict(OWNERS, MINE):
                _, meant = exact_answer(con, sql, tables)
        except duckdb.Error as error:
            raise Finding("what was read cannot be run", str(error)) from error
    if not same_rows(meant, expected) and not alike(meant, expected):
        unsure = sorted(map(len, (meant, expected))) == [0, 1] and groups_by_constants(sql)
        if ENDLESS.search(sql) or unsure:
            return None
        raise Finding("read otherwise than DuckDB does", f"{meant} is not {expected}")
    return names, expected


def groups_by_constants(sql):
    """Whether some GROUP BY has no column: then it is not told whether there is any row."""
    for select in sqlglot.parse_one(plain(sql), dialect="duckdb").find_all(exp.Select):
        group, shown = select.args.get("group"), select.expressions
        if group is None:
            continue
        keys = group.expressions or [each for each in shown if not each.find(exp.AggFunc)]
        places = (int(key.name) - 1 if key.is_int else None for key in keys)
        pairs = zip(keys, places, strict=True)
        meant = [shown[at] if at is not None and 0 <= at < len(shown) else key for key, at in pairs]
        if not any(each.find(exp.Column) for each in meant):
            return True
    return False


def marks_of(question):
    """What an accepted question is made of."""
    words = {"outer" if question.picked is None else "picked"}
    for block in question.blocks:
        words |= {each.function.name for each in block.aggregates}
        words |= {f"filtered {each.function.name}" for each in block.aggregates if each.where}
        text = repr(block)
        words |= set(re.findall(r"\b(Filter|Join|Matching|PerUnit|Project|Union|LEFT)\b", text))
        words |= set(re.findall(r"Call\((?:name=)?'(\w+)'", text))
        words |= {"sets"} if len(block.sets) > 1 else set()
        words |= {"open" if key.domain.keys is None else "keys" for key in block.by}
    return tuple(sorted(words))


@cache
def connection_of(name, seed):
    con = duckdb.connect(config={"threads": 1, "python_enable_replacements": "false", "enable_external_access": "false", "error_on_division_by_zero": "false"})  # fmt: skip
    for table, frame in world(name, seed).frames.items():
        con.register("raw", frame)
        con.execute(f"CREATE TABLE {table} AS SELECT * FROM raw")
        con.unregister("raw")
    return con


def plain(sql):
    return re.sub(
        r"WITH\s+DIFFERENTIAL_PRIVACY\s+OPTIONS\s*\([^)]*\)", "", sql, flags=re.IGNORECASE
    )


def is_plain(row):
    """Whether nothing in it is NaN, infinite or nested."""
    return all(
        isfinite(v) if isinstance(v, float) else not isinstance(v, list | dict | tuple) for v in row
    )


def short(value):
    """A value as text, numbers to six digits."""
    if isinstance(value, bool) or value is None:
        return str(value)
    try:
        return f"{float(value) + 0.0:.6g}"
    except (TypeError, ValueError, OverflowError):
        return str(value).removesuffix(" 00:00:00")


def alike(meant, expected):
    """Whether they are one bag of rows, whatever the last digits of their numbers are.

    A quantile of decimals is rounded to their places by DuckDB: in such columns, and no others.
    """
    places = {
        column: -value.as_tuple().exponent
        for row in expected for column, value in enumerate(row) if isinstance(value, Decimal)
    }  # fmt: skip
    return rounded(meant) == rounded(expected) or (
        bool(places) and rounded(meant, places) == rounded(expected, places)
    )


def rounded(rows, places=MappingProxyType({})):
    return Counter(
        tuple(
            short(round(v, places[i]) if i in places and isinstance(v, float) else v)
            for i, v in enumerate(row)
        )
        for row in rows
    )
