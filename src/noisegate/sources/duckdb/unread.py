"""What the rows of a table do not say as its policy has it: for the steward alone.

Steps on rows are total, so a value that cannot be read is NULL without a word, whoever asks. These
counts are exact and private: they are for whoever holds the rows anyway, and no door leads to them.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import duckdb
from sqlglot import exp

from noisegate.errors import SourceError
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.sources.duckdb.dialect import DUCKDB
from noisegate.sources.duckdb.files import GIVE, UNREACHABLE, Data, plain, quoted, stored_types
from noisegate.sources.policy.finding import Finding, Severity
from noisegate.sources.writing.words import (
    base_value,
    bound_value,
    col,
    is_not_null,
    not_,
    write_value,
)

_WRITE: Final = {
    Kind.INTEGER: "Write whole numbers in plain digits, such as 1234.",
    Kind.NUMBER: "Write numbers with a decimal point, such as 1234.5, and without other marks.",
    Kind.DATE: "Write dates as 2024-12-31.",
    Kind.TIMESTAMP: "Write timestamps as 2024-12-31 23:59:59, all in one time zone, without "
    "naming it.",
    Kind.BOOLEAN: "Write true and false.",
    Kind.TEXT: "Store it as text.",
}


def unread(data: Mapping[str, Data], tables: Mapping[str, TableDomain]) -> list[Finding]:
    """Values that count as NULL or as a bound, keys and owners that are missing. Reads rows."""
    files = {name: plain(each, name) for name, each in data.items()}
    found: list[Finding] = []
    with duckdb.connect(":memory:") as connection:
        origins, types = stored_types(connection, files)
        connection.execute(f"SET disabled_optimizers = {quoted('type_pushdown')}")
        try:
            for name, table in tables.items():
                found += _table(connection, table, types[name], origins[name])
        except duckdb.Error:  # what it says may quote rows
            raise SourceError(UNREACHABLE, fix=GIVE) from None
    return found


def _table(
    connection: duckdb.DuckDBPyConnection, table: TableDomain, types: Mapping[str, str], origin: str
) -> Iterator[Finding]:
    columns = {name: column for name, column in table.columns.items() if name in types}
    counts: list[exp.Expr] = [exp.Count(this=exp.Star())]
    for name, column in columns.items():
        counts += _counts(column, types[name])
    owner = None if table.unit is None or table.path else table.unit.column
    if owner is not None:
        counts.append(exp.CountIf(this=not_(is_not_null(col(owner)))))
    asked = exp.select(*counts).sql(dialect="duckdb")
    counted = connection.execute(f"{asked} FROM {origin}").fetchall()[0]
    numbers = [each or 0 for each in counted]  # COUNT_IF of no value at all is NULL
    rows = numbers[0]
    for place, (name, column) in enumerate(columns.items()):
        held, read, within, listed = numbers[1 + 4 * place : 5 + 4 * place]
        where = f"tables.{table.name}.columns.{name}"
        if held > read:
            words = f"{held - read:,} of {held:,} values cannot be read as {column.kind.value}"
            yield _finding(where, f"{words} and count as NULL.", _WRITE[column.kind])
        if read > within:
            words = f"{read - within:,} of {read:,} values lie outside of the bounds"
            yield _finding(where, f"{words} and count as a bound.", "Widen them, if that is wrong.")
        if read > listed:
            words = f"{read - listed:,} of {read:,} values are none of the declared keys"
            yield _finding(where, f"{words} and are in no group.", "List them, if that is wrong.")
    if owner is not None and numbers[-1]:
        words = f"{numbers[-1]:,} of {rows:,} rows have no {owner}, belong to no unit"
        yield _finding(f"tables.{table.name}.unit", f"{words} and are left out.", "Fill it in.")


def _counts(column: Column, stored: str) -> list[exp.Expr]:
    """How many values there are, are read, lie within the bounds, and are declared keys."""
    value = DUCKDB.read_as(column, stored, col(column.name))
    read: exp.Expr = exp.Count(this=base_value(column, stored, col(column.name), DUCKDB))
    within, listed = read.copy(), read.copy()
    if column.between is not None:
        low, high = (bound_value(bound, column.kind) for bound in column.between)
        within = exp.CountIf(this=exp.Between(this=value.copy(), low=low, high=high))
    if column.keys is not None:
        keys = [write_value(key, column.kind) for key in column.keys]
        listed = exp.CountIf(this=exp.In(this=value.copy(), expressions=keys))
    return [exp.Count(this=col(column.name)), read, within, listed]


def _finding(place: str, problem: str, fix: str) -> Finding:
    return Finding(severity=Severity.WARNING, place=place, problem=problem, fix=fix)
