"""A first policy from where the rows are: files, a DuckDB file, or a server's database."""

from collections.abc import Collection, Mapping, Sequence
from os.path import relpath
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, final

from noisegate.errors import SpecError
from noisegate.files import place_of, table_of, within
from noisegate.frozen import dataclass, field
from noisegate.privacy.domain import Kind
from noisegate.sources.duckdb.facts import data_of, stored_kinds
from noisegate.sources.duckdb.files import Within
from noisegate.sources.engines import engine_of
from noisegate.sources.policy.form import nearest
from noisegate.steward.draft import draft

_AS_STORED: Final[Mapping[str, str]] = MappingProxyType({})


@final
@dataclass(slots=True)
class _Found:
    """Tables by name: where they are, as the engine and as a policy says it."""

    data: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    links: list[tuple[str, tuple[str, str, str]]] = field(default_factory=list)
    notes: dict[tuple[str, str], str] = field(default_factory=dict)
    unique: set[tuple[str, str]] = field(default_factory=set)

    def add(self, table: str, data: Any, source: str) -> None:  # noqa: ANN401 - of any engine
        """One more."""
        if table in self.data:
            raise SpecError(
                "Two files have the same name.",
                fix="Rename one: a file's name becomes the name of its table.",
                about="name",
            )
        self.data[table], self.sources[table] = data, source


def draft_policy(  # noqa: PLR0913 - what the steward may say
    files: Sequence[str | Path],
    *,
    name: str = "dataset",
    unit: str | None = None,
    public: Collection[str] = (),
    types: Mapping[str, str] = _AS_STORED,
    read_types: bool = False,
    folder: Path | None = None,
) -> str:
    """A policy to be filled in, from names, types and declared keys alone; no row is read.

    Args:
        files: CSV and Parquet files, one for each table; DuckDB files with all their tables, or
            ``DATABASE.duckdb#TABLE``; or one ``postgresql://USER@HOST/DATABASE``.
        name: The name of the data set.
        unit: The column that names the person, of all tables that have it; or TABLE.COLUMN.
        public: Tables whose rows are nobody's.
        types: The type of a COLUMN or a TABLE.COLUMN of a text file, where all is text else.
        read_types: Whether to find the types of text files in their rows.
        folder: Where the policy will be: files are named as seen from there.
    """
    if any("://" in str(file) for file in files):
        found = _server(files)
        kinds = engine_of([str(files[0])]).stored_kinds(found.data)
    else:
        found = _Found()
        for file in files:
            _add(found, str(file), folder)
        kinds = stored_kinds(found.data)
    if read_types:
        from noisegate.sources.duckdb.catalogue import kinds_read  # noqa: PLC0415 - where asked for

        for table, data in found.data.items():
            kinds[table] |= kinds_read(data) if isinstance(data, Path) else {}
    _declare(kinds, types)
    return draft(
        kinds, sources=found.sources, name=name, links=found.links, notes=found.notes,
        unique=found.unique, unit=unit, public=public, read=read_types,
    )  # fmt: skip


def _declare(kinds: dict[str, dict[str, Kind]], types: Mapping[str, str]) -> None:
    """Columns as the steward says that they are to be read."""
    for said, kind in types.items():
        known = [f"{table}.{column}" for table in kinds for column in kinds[table]]
        places = [each for each in known if said in (each, each.partition(".")[2])]
        if not places:
            raise SpecError(
                f"No table has the column {said!r}.", fix=nearest(said, known), about="type"
            )
        if kind not in {each.value for each in Kind}:
            raise SpecError(
                f"{kind!r} is not a type.",
                fix=nearest(kind, [each.value for each in Kind]),
                about="type",
            )
        for table, _, column in (each.partition(".") for each in places):
            kinds[table][column] = Kind(kind)


def _add(found: _Found, file: str, folder: Path | None) -> None:
    """The table of a file; all tables of a DuckDB file, with their keys and comments."""
    path, inside = place_of(file)
    seen = path if folder is None or Path(path).is_absolute() else relpath(path, folder)
    if inside is not None:
        found.add(table_of(inside)[1], data_of(file), f"{seen}#{inside}")
        return
    if Path(path).suffix.lower() != ".duckdb":
        found.add(Path(path).stem, Path(path), seen)
        return
    from noisegate.sources.duckdb.catalogue import catalogue  # noqa: PLC0415 - of databases

    tables, links, notes, unique = catalogue(Path(path))
    for data in tables:
        found.add(_name(data), data, within(seen, data.schema, data.table))
    found.links += [(_name(of), (column, _name(to), key)) for of, (column, to, key) in links]
    found.notes |= {(_name(of), column): text for (of, column), text in notes.items()}
    found.unique |= {(_name(of), column) for of, column in unique}


def _name(data: Within) -> str:
    return data.table if data.schema == "main" else f"{data.schema}_{data.table}"


def _server(files: Sequence[str | Path]) -> _Found:
    """All tables of a database: types, foreign keys and comments."""
    engine_of([str(files[0])])
    if len(files) != 1 or not str(files[0]).startswith("postgres"):
        raise SpecError(
            "A policy is drafted from files, or from one database.",
            fix="Give files, or one address such as postgresql://USER@HOST/DATABASE.",
            about="name",
        )
    from noisegate.sources.postgres.facts import catalogue, origin_of  # noqa: PLC0415 - an extra

    data, links, notes, unique = catalogue(str(files[0]))
    sources = {table: origin_of(place) for table, place in data.items()}
    return _Found(dict(data), sources, links, notes, unique)
