"""Letters as DuckDB changes and trims them: other engines are told one by one."""

from functools import cache
from typing import Final

from sqlglot import exp

_ALL_LETTERS: Final = (
    "SELECT i, chr(i::INT) AS x FROM "
    "(SELECT * FROM range(1, 55296) UNION ALL SELECT * FROM range(57344, 1114112)) t(i)"
)


@cache
def letters(function: str) -> tuple[str, str]:
    """The letters that DuckDB changes one by one, and what it changes them to."""
    import duckdb  # noqa: PLC0415 - the reference

    changed = exp.func(function, exp.column("x")).sql(dialect="duckdb")
    asked = f"{changed} FROM ({_ALL_LETTERS}) WHERE i > 127 AND x <> {changed}"
    with duckdb.connect(":memory:") as connection:
        found = connection.execute(f"SELECT x, {asked}").fetchall()
    return "".join(old for old, _ in found), "".join(new for _, new in found)


@cache
def blanks() -> str:
    """The characters that DuckDB trims."""
    import duckdb  # noqa: PLC0415 - the reference

    asked = f"trim(x) FROM ({_ALL_LETTERS}) WHERE trim(x) = ''"
    with duckdb.connect(":memory:") as connection:
        found = connection.execute(f"SELECT x, {asked}").fetchall()
    return "".join(row[0] for row in found)
