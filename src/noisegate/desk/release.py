"""What all releases share: a promise, a card, files by their ending, and a look on a screen."""

import json
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar
from zipfile import BadZipFile

import pyarrow as pa

from noisegate.arrow import numbers
from noisegate.desk.answer import Answer, also_in
from noisegate.desk.based import NOTHING, Based
from noisegate.desk.card import Card
from noisegate.desk.card import card as card_of
from noisegate.desk.display.drawing import Chart, image
from noisegate.desk.display.numbers import rich_table
from noisegate.desk.display.plot import write
from noisegate.desk.display.tables import answer_html
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.signed import (
    CARD_ENDING,
    read_statement,
    require_signable,
    signed,
    signed_answer,
)
from noisegate.errors import SpecError
from noisegate.exact import Number as Numeric
from noisegate.extras import extra
from noisegate.files import require_output, written
from noisegate.files import write as write_file
from noisegate.frozen import dataclass
from noisegate.inert import json_text, line, lines
from noisegate.ledger.signing import Signer
from noisegate.ledger.verify.anchor import NO_LOG, Anchor, Log
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

PICTURES: Final = (".png", ".svg", ".html")
ENDINGS: Final = (".parquet", ".csv", ".json", *PICTURES, ".md")
_SHOWN: Final = 200  # rows on a screen
_LONG: Final = (1 << 31) - 1  # of metadata in a file
_VALUES_MAX: Final = 1 << 27  # in a file
RELEASE: Final = "noisegate-release/1"  # a signature over the seal of a file
_CARD: Final = "noisegate.card"
_SEAL: Final = "noisegate.seal"
_SIGNATURE: Final = "noisegate.signature"
_WITH_VALUES: Final = "2 "  # how a seal begins that covers them


T = TypeVar("T", bound="Held")


class Held(ABC):
    """A release in somebody's hands. Reading it again never draws again and never costs.

    ``kind`` is the name of its record in a Parquet file; ``stated`` is the card, where it was read
    from one.
    """

    __slots__ = ()
    kind: ClassVar[str]
    form: ClassVar[str]
    endings: ClassVar[tuple[str, ...]] = ENDINGS
    stated: Card | None

    @abstractmethod
    def answer(self, rows: int | None = None) -> Answer:
        """The same as an answer has it: all rows, or the first, to be looked at."""

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """What a Parquet file must hold besides the rows and the promise, as plain values."""

    @property
    def rests(self) -> Based:
        """What it rests on besides its own entry of the ledger."""
        return NOTHING

    @property
    def cut(self) -> bool | None:
        """Whether a contribution bound may leave out some of what a unit adds; None: not known.

        Counts, and sums of non-negative values, are lower bounds then.
        """
        return None

    def facts(self) -> dict[str, str]:
        """Further metadata of a Parquet file, by name."""
        return {}

    @property
    @abstractmethod
    def headline(self) -> str:
        """What it is, in a few words."""

    def plot(self, confidence: Numeric = 0.95) -> Chart:
        """A picture, an altair chart; ``.save("x.png")`` writes it."""
        return self.answer().plot(confidence)

    @property
    def free(self) -> bool:
        """Whether it came from the ledger or a file, without a new charge."""
        return self.answer(0).free

    @property
    def promise(self) -> str:
        """The guarantee in a sentence."""
        return self.answer(0).promise

    def card(self, confidence: Numeric = 0.95) -> Card:
        """The release card: what was measured and guaranteed, checkable against the ledger."""
        return self.stated or card_of(self.answer(), confidence)

    # other forms

    def to_arrow(self, confidence: Numeric | None = None) -> "pa.Table":
        """All rows; with a confidence, also error bars."""
        return self.answer().to_arrow(confidence)

    def to_pandas(self, confidence: Numeric | None = None) -> "pd.DataFrame":
        """The same as a pandas frame."""
        extra("pandas", "Frames of pandas")
        return self.to_arrow(confidence).to_pandas()

    def to_polars(self, confidence: Numeric | None = None) -> "pl.DataFrame":
        """The same as a Polars frame."""
        return extra("polars", "Frames of Polars").DataFrame(self.to_arrow(confidence))  # type: ignore[no-any-return]

    def to_csv(self, file: str | Path | None = None, confidence: Numeric = 0.95) -> str:
        """Comma-separated rows with error bars, also written to a file if one is named."""
        return self.answer().to_csv(file, confidence)

    def to_dict(self, confidence: Numeric = 0.95) -> dict[str, Any]:
        """Plain JSON values: those of an answer, and the SQL."""
        answer = self.answer()
        return answer.to_dict(confidence) | {"sql": answer.sql}

    def to_json(
        self,
        file: str | Path | None = None,
        confidence: Numeric = 0.95,
        *,
        sign: Signer | None = None,
    ) -> str:
        """`to_dict` as JSON text, also written to a file if one is named; signed by a `Signer`."""
        record = self.to_dict(confidence)
        if sign is not None:
            self._require_made_here()
            record = signed_answer(self.answer(0), record, sign)
        return also_in(json_text(record), file)

    # files

    def save(
        self, file: str | Path, confidence: Numeric = 0.95, *, sign: Signer | None = None
    ) -> None:
        """Write it in the format of the file's ending. A Parquet file is complete: see `load`.

        ``.card.json`` is the card. With a `Signer` it is signed: `.card.json`, `.json`, `.parquet`.
        """
        path = require_output(file, self.endings)
        if sign is not None:
            require_signable(path)
            self._require_made_here()
        if path.name.lower().endswith(CARD_ENDING):
            card = self.card(confidence)
            write_file(path, (card if sign is None else card.signed(sign)).to_json())
        elif sign is None:
            self.writers(path, confidence)[path.suffix.lower()]()
        elif path.suffix.lower() == ".parquet":
            self._save(path, confidence, sign)
        else:
            self.to_json(path, confidence, sign=sign)

    def _require_made_here(self) -> None:
        """Whoever signs a file from elsewhere vouches for what it says."""
        if self.stated is not None:
            raise SpecError(
                "A release that was read from a file is not signed.",
                fix="Request it again, which is free, and sign that.",
                about="loaded",
            )

    def writers(self, path: Path, confidence: Numeric) -> dict[str, Callable[[], Any]]:
        """How to write each file format."""
        card: Callable[[], str] = lambda: self.card(confidence).to_markdown()  # noqa: E731
        return {
            ".parquet": lambda: self._save(path, confidence),
            ".csv": lambda: self.to_csv(path, confidence),
            ".json": lambda: self.to_json(path, confidence),
            ".md": lambda: write_file(path, card()),
            **dict.fromkeys(PICTURES, lambda: write(self.plot(confidence), path)),
        }

    def parquet(self, confidence: Numeric) -> "pa.Table":
        """The rows of a Parquet file."""
        return self.to_arrow(confidence)

    def _save(self, path: Path, confidence: Numeric, sign: Signer | None = None) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415 - only when asked for

        kept = self.answer(0)
        guarantee = kept.guarantee
        promised = {
            "format": self.form,
            "sql": kept.sql,
            "loss": [str(guarantee.loss.epsilon), str(guarantee.loss.delta)],  # type: ignore[union-attr]
            "unit": [guarantee.unit.column, guarantee.unit.noun],
            "ids": guarantee.unit.ids,
            "also": [[unit.column, unit.noun, unit.ids] for unit in guarantee.also],
            "scope": guarantee.scope,
            "question": kept.questions[0] if kept.questions else "",
            "request": kept.request_ids[0] if kept.request_ids else "",
            "practice": kept.practice,
            **({"zero_knowledge": True} if guarantee.zero_knowledge else {}),
            **({} if guarantee.added is None else {"added": guarantee.to_dict()["added"]}),
            **({"based": self.rests.to_record()} if self.rests.questions else {}),
            **({} if self.cut is None else {"cut": self.cut}),
        }
        text = json.dumps(promised | self.record(), ensure_ascii=False)
        facts = {f"noisegate.{self.kind}": text, **self.facts()}
        if not kept.practice:
            facts[_CARD] = self.card(confidence).to_json()
        table = self.parquet(confidence)
        facts[_SEAL] = _sealed(table, {name: text.encode() for name, text in facts.items()})
        if sign is not None:
            stated = signed({"format": RELEASE, "seal": facts[_SEAL]}, sign)
            facts[_SIGNATURE] = json_text(stated)
        with written(path):
            pq.write_table(table.replace_schema_metadata(facts), path, write_page_checksum=True)

    # on a screen

    def shown(self, confidence: Numeric = 0.95) -> Answer:  # noqa: ARG002 - its cells follow
        """Its first rows as an answer, for a screen."""
        return self.answer(_SHOWN)

    def footer(self, confidence: Numeric = 0.95) -> str:
        """What it is, price, balance and what the ± means; then the caveats, one a line."""
        return f"{self.headline} · {self.shown().footer(confidence)}"

    def __str__(self) -> str:
        answer = self.shown()
        rows = ["\t".join(row) for row in (map(line, answer.columns), *answer.cells())]
        return lines("\n".join([*rows, self.footer()]))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {line(self.footer().splitlines()[0])}>"

    def _repr_html_(self) -> str:
        drawn = image(self.plot) if {*PICTURES} <= {*self.endings} else ""
        return answer_html(self.shown(), self.footer()) + drawn

    def __rich__(self) -> Any:  # noqa: ANN401 - rich is loaded only for a terminal
        from rich.console import Group  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        answer = self.shown()
        table = rich_table(answer.columns, answer.cells())
        return Group(table, Text(lines(self.footer())), Text(lines(self.promise)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Charged(Held):
    """A release that was paid for by itself: its price, its promise, where the ledger has it.

    ``remaining`` is None, and ``stated`` the card, where it was read from a file. ``cut`` is
    None in older files.
    """

    sql: str
    cost: ApproxDP
    remaining: ApproxDP | None
    guarantee: Guarantee
    question: str
    request_id: str
    practice: bool = False
    log: Log = NO_LOG
    stated: Card | None = None
    based: Based = NOTHING
    cut: bool | None = None

    @property
    def rests(self) -> Based:  # noqa: D102 - see Held
        return self.based

    def stating(
        self,
        table: "pa.Table",
        half_widths: Callable[[Numeric], Sequence[HalfWidths]],
        caveats: Sequence[str],
        unfollowed: Callable[[], tuple[str, ...]] = tuple,
        unsigned: Sequence[str] = (),
        amounts: Sequence[str] | None = None,
    ) -> Answer:
        """Some of its numbers as an answer, with all that the release states.

        Columns that are ``unsigned`` are amounts, unless others are named. If it is ``cut``, these
        are lower bounds.
        """
        adding = unsigned if amounts is None else amounts
        return Answer(
            sql=self.sql,
            table=table,
            half_widths=half_widths,
            cost=self.cost,
            remaining=self.remaining,
            guarantee=self.guarantee,
            request_ids=(self.request_id, *self.based.request_ids),
            questions=(self.question, *self.based.questions),
            caveats=tuple(dict.fromkeys((*caveats, *self.based.words))),
            practice=self.practice,
            unfollowed=unfollowed,
            unsigned=lambda: unsigned,
            amounts=lambda: adding,
            lower=lambda: adding if self.cut else (),
            log=self.log,
        )


def _unit(record: Sequence[str | None]) -> PrivacyUnit:
    """A unit of a file; earlier files name no id space."""
    column, noun, ids = record
    return PrivacyUnit(column=column, noun=str(noun), ids=ids)


def loading(load: Callable[[type[T], str | Path], T]) -> Callable[[type[T], str | Path], T]:
    """A `load` that refuses a file whose seal fits and whose content no `save` wrote."""

    @wraps(load)
    def checked(kind: type[T], file: str | Path) -> T:
        unread = (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)
        unpacked = (BadZipFile, EOFError, zlib.error)
        try:
            made = load(kind, file)
            made.answer(0)
        except (*unread, *unpacked, pa.ArrowException):
            raise _changed(file) from None
        return made

    return checked


def _changed(file: str | Path) -> SpecError:
    return SpecError(
        f"{Path(file).name!r} was damaged or changed.",
        fix="Use the file as save() wrote it.",
        about="changed",
    )


def read_held(file: str | Path, kind: type[Held]) -> "tuple[pa.Table, Mapping[str, Any]]":
    """Rows and record of a Parquet file that `save` wrote.

    The record's ``standing`` are the fields that every release has: what was paid and promised;
    its ``facts`` are all metadata of the file.
    """
    try:
        table, facts = _read(file)
        record = json.loads(facts[f"noisegate.{kind.kind}"])
        known = record["format"] == kind.form
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException):
        known = False
    if not known:
        raise SpecError(
            f"{Path(file).name!r} is not a saved release of this kind.",
            fix="Give a Parquet file written by save().",
            about="kind",
        )
    _require_sealed(file, table, facts)
    card = facts.get(_CARD)
    stated = None if card is None else Card.from_json(card.decode())
    head = None if stated is None else stated.record.get("head")
    standing = {
        "sql": record["sql"],
        "cost": ApproxDP(0),
        "remaining": None,
        "guarantee": Guarantee(
            loss=ApproxDP(*map(Fraction, record["loss"])),
            unit=_unit([*record["unit"], record.get("ids")]),
            scope=record["scope"],
            also=tuple(_unit(each) for each in record.get("also", ())),
            zero_knowledge=record.get("zero_knowledge", False),
            added=ApproxDP(**record["added"]) if "added" in record else None,
        ),
        "question": record["question"],
        "request_id": record.get("request", record.get("request_id")),
        "practice": record["practice"],
        "log": NO_LOG if head is None else Log(Anchor.from_dict(head)),
        "stated": stated,
        **({"based": Based.from_record(record["based"])} if "based" in record else {}),
        **({"cut": bool(record["cut"])} if "cut" in record else {}),
    }
    return table, record | {"standing": standing, "facts": facts}


def read_sealed(file: str | Path) -> tuple[dict[str, Any] | None, Card | None]:
    """The signed statement of a saved release whose seal fits, and its card, where it has them."""
    try:
        table, facts = _read(file)
        seal = facts[_SEAL].decode()
        fits = seal == _sealed(table, facts)
        signature, card = facts.get(_SIGNATURE), facts.get(_CARD)
        stated = None if signature is None else read_statement(signature.decode())
        named = None if card is None else Card.from_json(card.decode())
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException):
        raise _changed(file) from None
    if not fits or (stated is not None and stated.get("seal") != seal):
        raise _changed(file)
    return stated, named


def _read(file: str | Path) -> "tuple[pa.Table, dict[str, bytes]]":
    """The rows and metadata of a Parquet file."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - only when asked for

    limits = {"thrift_string_size_limit": _LONG, "thrift_container_size_limit": _LONG}
    held = pq.ParquetFile(str(file), **limits).metadata
    if held.num_rows * held.num_columns > _VALUES_MAX:  # a few bytes can stand for millions
        raise _changed(file)
    table = pq.read_table(str(file), **limits, page_checksum_verification=True)
    return table, {name.decode(): text for name, text in (table.schema.metadata or {}).items()}


def _require_sealed(file: str | Path, table: "pa.Table", facts: Mapping[str, bytes]) -> None:
    """Refuse a file that was changed. Seals of earlier versions leave its numbers out."""
    if _SEAL in facts:
        seal = facts[_SEAL].decode(errors="replace")
        covers_values = seal.startswith(_WITH_VALUES)
        if seal != (_sealed if covers_values else _sealed_facts)(table, facts):
            raise _changed(file)
        if covers_values:
            return
    warnings.warn(
        f"{Path(file).name!r} was saved by an earlier version of noisegate, without a checksum of "
        "its numbers: a change would go unnoticed. Request the release again, which is free, and "
        "save it.",
        stacklevel=5,  # where load() is called
    )


def _sealed(table: "pa.Table", facts: Mapping[str, bytes]) -> str:
    """A hash of all that a file says: facts, columns, values.

    It shows accidents and careless edits. Whoever means to deceive can compute it anew: what was
    released stands in the ledger, where the same request is answered again, free of charge.
    """
    found = sha256(_sealed_facts(table, facts).encode())
    for column in table.columns:
        for part in _parts(column):
            found.update(b"\n%d " % len(part))
            found.update(part)
    return f"{_WITH_VALUES}{found.hexdigest()}"


def _sealed_facts(table: "pa.Table", facts: Mapping[str, bytes]) -> str:
    """A hash of facts, columns and how many rows there are: the seal of earlier versions."""
    found = sha256(json.dumps([table.column_names, table.num_rows]).encode())
    for name in sorted(facts):
        if name.startswith("noisegate.") and name not in (_SEAL, _SIGNATURE):
            found.update(f"\n{name} {len(facts[name])} ".encode() + facts[name])
    return found.hexdigest()


def _parts(column: "pa.ChunkedArray") -> Iterator[bytes]:
    """The type and the values of a column, however it is cut into chunks."""
    import pyarrow.compute as pc  # noqa: PLC0415

    kind = column.type
    yield str(kind).encode()
    if kind not in (pa.int64(), pa.float64()):
        yield json.dumps(column.to_pylist(), default=str).encode()
        return
    yield numbers(pc.is_null(column).cast(pa.int64())).tobytes()
    yield numbers(pc.fill_null(column, 0)).tobytes()
