"""What stewards draft a policy from: the catalogue of a DuckDB file, and types of text files.

The catalogue is read without a row. Types of text are found in the rows, and only for a steward who
says so: one row may decide over a type.
"""

from pathlib import Path
from typing import Final, TypeAlias

import duckdb
from sqlglot import exp

from noisegate.errors import SourceError
from noisegate.privacy.domain import Column, Kind
from noisegate.sources.duckdb.dialect import DUCKDB
from noisegate.sources.duckdb.files import (
    GIVE,
    UNREACHABLE,
    Within,
    is_text,
    require_file,
    stored_types,
)
from noisegate.sources.writing.words import base_value, col

Links: TypeAlias = list[tuple[Within, tuple[str, Within, str]]]  # table, (column, table, key)
Notes: TypeAlias = dict[tuple[Within, str], str]
Unique: TypeAlias = set[tuple[Within, str]]

_TABLES: Final = (
    "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'file' ORDER BY ALL"
)
_LINKS: Final = (
    "SELECT schema_name, table_name, constraint_column_names[1], referenced_table, "
    "referenced_column_names[1] FROM duckdb_constraints() WHERE database_name = 'file' "
    "AND constraint_type = 'FOREIGN KEY' AND len(constraint_column_names) = 1 ORDER BY ALL"
)
_UNIQUE: Final = (
    "SELECT schema_name, table_name, constraint_column_names[1] FROM duckdb_constraints() "
    "WHERE database_name = 'file' AND constraint_type IN ('PRIMARY KEY', 'UNIQUE') "
    "AND len(constraint_column_names) = 1"
)
_NOTES: Final = (
    "SELECT schema_name, table_name, column_name, comment FROM duckdb_columns() "
    "WHERE database_name = 'file' AND comment IS NOT NULL"
)
# How all values of a column must be written to be taken for one of a kind. Digits after a leading
# zero are a code.
_WRITTEN: Final = {
    Kind.BOOLEAN: r"(?i)true|false",
    Kind.INTEGER: r"[+-]?(0|[1-9][0-9]{0,17})",
    Kind.NUMBER: r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?",
    Kind.DATE: r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    Kind.TIMESTAMP: r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:.]+",
}


def catalogue(file: Path) -> tuple[list[Within], Links, Notes, Unique]:
    """The tables of a DuckDB file, without views; declared foreign keys, comments, unique ids."""
    require_file(file)
    with duckdb.connect(":memory:") as connection:
        where = exp.Literal.string(str(file.resolve())).sql(dialect="duckdb")
        try:
            connection.execute(f"ATTACH {where} AS file (READ_ONLY, TYPE duckdb)")
            tables, links, notes, unique = (
                connection.execute(sql).fetchall() for sql in (_TABLES, _LINKS, _NOTES, _UNIQUE)
            )
        except duckdb.Error:
            raise SourceError(UNREACHABLE, fix=GIVE, about="unreadable") from None
    if not tables:
        raise SourceError(f"{file.name!r} has no table.", fix=GIVE, about="table")
    return (
        [Within(file, table, schema) for schema, table in tables],
        [
            (Within(file, table, schema), (column, Within(file, other, schema), key))
            for schema, table, column, other, key in links
        ],
        {(Within(file, table, schema), column): text for schema, table, column, text in notes},
        {(Within(file, table, schema), column) for schema, table, column in unique},
    )


def kinds_read(file: Path) -> dict[str, Kind]:
    """What all values of each column of a text file are written as: text, unless they all agree.

    Reads rows. Columns without any value stay text.
    """
    if not is_text(file):
        return {}
    kinds = list(_WRITTEN)
    with duckdb.connect(":memory:") as connection:
        try:
            origins, types = stored_types(connection, {"file": file})
            names = list(types["file"])
            counts = [each for name in names for each in _counts(name)]
            asked = exp.select(*counts).sql(dialect="duckdb")
            (found,) = connection.execute(f"{asked} FROM {origins['file']}").fetchall()
        except duckdb.Error:  # what it says may quote rows
            raise SourceError(UNREACHABLE, fix=GIVE, about="unreadable") from None
    step, read = len(kinds) + 1, {}
    for place, name in enumerate(names):
        held, *agreeing = found[step * place : step * (place + 1)]
        pairs = zip(kinds, agreeing, strict=True)
        read[name] = next((kind for kind, all_of in pairs if held and all_of == held), Kind.TEXT)
    return read


def _counts(name: str) -> list[exp.Expr]:
    """How many values there are, and how many are written, and read, as each kind."""
    found: list[exp.Expr] = [exp.Count(this=col(name))]
    for kind, form in _WRITTEN.items():
        written = exp.Anonymous(
            this="regexp_full_match", expressions=[col(name), exp.Literal.string(form)]
        )
        read = base_value(Column(name=name, kind=kind), "VARCHAR", col(name), DUCKDB)
        counted = exp.Count(this=exp.Case(ifs=[exp.If(this=written, true=read)]))
        found.append(counted)
    return found
