"""The example's rows for hundreds of services, opened once: nobody here writes to them.

To open them takes a quarter of a second of processor time, more than most tests. A policy of the
same words over the same rows has the same tables, and the same tables the same engine.
"""

import atexit
import shutil
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from noisegate.root import hosting

EXAMPLES = Path(__file__).parents[2] / "examples"


@cache
def rows() -> Path:
    """A copy of the example's rows, for this process."""
    folder = TemporaryDirectory(prefix="noisegate-clinic-")
    atexit.register(folder.cleanup)
    return Path(shutil.copytree(EXAMPLES / "clinic", Path(folder.name).resolve() / "clinic"))


def clinic_in(folder: Path) -> Path:
    """A policy of its own in a folder, beside the rows of the example."""
    (folder / "clinic").symlink_to(rows(), target_is_directory=True)
    return Path(shutil.copy(EXAMPLES / "clinic.toml", folder))


def own_rows(policy: Path) -> None:
    """Rows of its own for a policy whose test changes them."""
    (policy.parent / "clinic").unlink()
    shutil.copytree(rows(), policy.parent / "clinic")


@contextmanager
def opened_once():
    """Tables and engine of the example's rows are found again; all others are opened as ever."""
    known, engines = {}, {}
    tables_of, source_of = hosting.tables_of, hosting.source_of

    def same_tables(policy):
        if (policy.file.parent / "clinic").resolve() != rows():
            return tables_of(policy)
        words = policy.file.read_bytes()
        if words not in known:
            known[words] = tables_of(policy)[1]
        origins = {name: policy.origin(name) for name in known[words]}
        data = {
            name: hosting.engine_of([origin]).data_of(origin) for name, origin in origins.items()
        }
        return data, {
            name: replace(table, origin=origins[name]) for name, table in known[words].items()
        }

    def same_engine(data, tables, *, practice, engine):
        if practice or not all(
            Path(str(each)).resolve().parent == rows() for each in data.values()
        ):
            return source_of(data, tables, practice=practice, engine=engine)
        means = repr({name: replace(table, origin="") for name, table in tables.items()})
        if means not in engines:
            there = {name: rows() / Path(str(each)).name for name, each in data.items()}
            engines[means] = source_of(there, tables, practice=False, engine=engine)
        return engines[means]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosting, "tables_of", same_tables)
        patch.setattr(hosting, "source_of", same_engine)
        yield
