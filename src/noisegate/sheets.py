"""Comma-separated files that a spreadsheet shows and never computes.

A text that begins like a formula (=, +, -, @, tab, line end) has an apostrophe before it, as OWASP
advises; so has one that begins with apostrophes and then so, which makes it reversible: `read_csv`
reads what was written. Numbers are left alone, negative ones too.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import csv

from noisegate.errors import SpecError
from noisegate.inert import FORMULA, cell, from_cell

_BARE: Final = re.compile(r'[^\x00-\x1f",\s]([^\x00-\x1f",]*[^\x00-\x1f",\s])?')


def csv_text(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows below the names of their columns, as RFC 4180 has them."""
    return "".join(f"{','.join(map(_cell, row))}\n" for row in (names, *rows))


def _cell(value: Any) -> str:  # noqa: ANN401 - of a table
    """A missing value is empty, and an empty text stands in quotes."""
    if not isinstance(value, str):
        return "" if value is None else str(value)
    text = cell(value)
    return text if _BARE.fullmatch(text) else '"' + text.replace('"', '""') + '"'


def csv_table(table: pa.Table) -> pa.Table:
    """A table as Arrow's own writer of large files shall write it."""
    import pyarrow.compute as pc  # noqa: PLC0415

    columns = [
        pc.replace_substring_regex(column, FORMULA, r"'\1")
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        else column
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, names=[cell(name) for name in table.column_names])


def read_csv(file: str | Path, types: "Mapping[str, pa.DataType] | None" = None) -> pa.Table:
    """What `to_csv` or `save` wrote, as an Arrow table.

    Args:
        file: A comma-separated file of an answer or a release.
        types: Arrow types of columns by name, such as ``{"zip": pyarrow.string()}``. Others are
            guessed: 007 becomes 7.
    """
    convert = csv.ConvertOptions(
        column_types={cell(name): kind for name, kind in (types or {}).items()},
        null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False,
    )  # fmt: skip
    parse = csv.ParseOptions(newlines_in_values=True)
    try:
        table = csv.read_csv(str(file), parse_options=parse, convert_options=convert)
    except (OSError, pa.ArrowException):
        table = None
    if table is None:
        raise SpecError(
            f"{Path(file).name!r} cannot be read.",
            fix="Give a file written by to_csv().",
            about="file",
        )
    columns = [
        pa.array([each and from_cell(each) for each in column.to_pylist()], pa.string())
        if pa.types.is_string(column.type)
        else column
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, names=[from_cell(name) for name in table.column_names])
