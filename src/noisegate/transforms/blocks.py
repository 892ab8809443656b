"""How far one unit moves what programs say about blocks of rows.

>>> from noisegate.algebra.relation import Table
>>> from noisegate.privacy.domain import Column, Kind, TableDomain
>>> from noisegate.privacy.unit import PrivacyUnit
>>> column = Column(name="age", kind=Kind.INTEGER)
>>> people = TableDomain(
...     dataset="d", name="people", unit=PrivacyUnit(column=None), columns={"age": column}
... )
>>> blocks = Blocks(
...     relation=Table(people), columns=("age",), program=Program("…", "f"), blocks=100,
...     ranges=((Fraction(0), Fraction(120)),), defaults=(Fraction(60),), seconds=Fraction(1),
...     memory=256,
... )
>>> BlockQuery(blocks).l1s
(L1(value=Fraction(1048576, 1)),)
"""

from fractions import Fraction
from hashlib import sha256
from math import log10
from typing import Any, Final, final

from noisegate.algebra.blocks import STEPS, Blocks, Program
from noisegate.algebra.relation import sample_of
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import fields_used
from noisegate.errors import SpecError, Unsupported
from noisegate.frozen import dataclass
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.domain import TableDomain
from noisegate.transforms.checks import require_exact
from noisegate.transforms.records import relation_record, table_record
from noisegate.transforms.stability import Stability, stability_of

BLOCKS_MAX: Final = 100_000
OUTPUTS_MAX: Final = 1_000
SECONDS: Final = Fraction(1, 50), Fraction(24 * 3600)
MEMORY: Final = 16, 1 << 20  # megabytes
_DIGITS_MAX: Final = 300  # of the ends of a range: doubles hold them


@final
@dataclass(frozen=True, slots=True)
class BlockQuery:
    """Blocks, checked: the sensitivity is computed from them, never stated by a caller."""

    tally: Blocks

    def __post_init__(self) -> None:
        tally = self.tally
        if type(tally) is not Blocks or type(tally.program) is not Program:
            raise Unsupported(
                "This is not a program on blocks.", fix="Use Blocks and Program.", about="program"
            )
        require_exact(tally.relation)
        self._require_rows(tally)
        for name, most in (("blocks", BLOCKS_MAX), ("resample", BLOCKS_MAX), ("workers", 1024)):
            _require_whole(name, getattr(tally, name), (1, most))
        _require_whole("blocks times resample", tally.answers, (1, BLOCKS_MAX))
        _require_whole("memory", tally.memory, MEMORY)
        _require_whole("the number of outputs", len(tally.ranges), (1, OUTPUTS_MAX))
        low, high = SECONDS
        if type(tally.seconds) is not Fraction or not low <= tally.seconds <= high:
            raise SpecError(
                "seconds is not usable.",
                fix=f"Use {float(low)} to {high} seconds.",
                about="seconds",
            )
        if type(tally.trusted) is not bool:
            raise SpecError("trusted is not usable.", fix="Use True or False.", about="trusted")
        self._require_ranges(tally)

    def _require_rows(self, tally: Blocks) -> None:
        facts, schema = self.stability, schema_of(tally.relation)
        if not facts.is_private:
            raise Unsupported(
                "The rows are public.", fix="Run the program on them: it is free.", about="public"
            )
        if facts.is_row_level and facts.rows != 1:
            raise Unsupported(
                "One row could be in several blocks.", fix="Use one table, or name its units."
            )
        if sample_of(tally.relation) is not None:
            raise Unsupported(
                "All deals use one sample.", fix="Declare the sample on the blocks.", about="deals"
            )
        if tally.sample is not None and not (
            type(tally.sample) is Fraction and 0 < tally.sample < 1
        ):
            raise SpecError(
                "The sampling probability is out of range.",
                fix="Use one between 0 and 1.",
                about="sample",
            )
        if type(tally.columns) is not tuple or not tally.columns:
            raise SpecError(
                "The program has no column to read.", fix="Name at least one.", about="no-column"
            )
        if missing := [name for name in tally.columns if name not in schema]:
            raise SpecError(
                f"There is no column {missing[0]!r}.",
                fix=f"Use {', '.join(schema)}.",
                about="column",
            )
        if len(set(tally.columns)) < len(tally.columns):
            raise SpecError("A column is named twice.", fix="Name each once.", about="twice")

    def _require_ranges(self, tally: Blocks) -> None:
        if len(tally.defaults) != len(tally.ranges):
            raise SpecError(
                "There must be one default per range.", fix="Give one for each.", about="default"
            )
        for (low, high), default in zip(tally.ranges, tally.defaults, strict=True):
            if {type(low), type(high), type(default)} != {Fraction} or not low <= default <= high:
                raise SpecError(
                    "A default is outside its range.", fix="Use one inside.", about="default"
                )
            if low >= high or log10(max(abs(low), abs(high), high - low)) > _DIGITS_MAX:
                raise SpecError(
                    "A range is empty or too wide.", fix="Use low < high.", about="range"
                )

    @property
    def stability(self) -> Stability:
        """Whose rows they are."""
        return stability_of(self.tally.relation)

    @property
    def tables(self) -> tuple[TableDomain, ...]:
        """The tables that are read."""
        return self.stability.tables

    @property
    def changed(self) -> int:
        """How many of the numbers of one output a unit changes at most.

        Claim: as many as run at once, for each deal (`resample`); the others are the same, and how
            many there are is public. Adjacency: add/remove one unit; changing one likewise.
        Why: [MTSSC12], [Smi11]. Which block a unit is dealt to, and the order of its rows among the
            others of the block, are decided by chance of its own, whoever else is there; its rows
            depend on no other unit (`stability`). So, chance being the same, one block of each deal
            has other rows. A program's number is made of one block alone, and of how busy those of
            the same turn keep the machine (`isolated`); a trusted one does not look at that. Of a
            sample, this is said of units that are in it.
        Rounding: none.
        """
        return self.tally.resample * self._feel_each_other

    @property
    def _feel_each_other(self) -> int:
        return 1 if self.tally.trusted else min(self.tally.workers, self.tally.blocks)

    @property
    def l1s(self) -> tuple[L1, ...]:
        """For each output, how far the sum of its numbers moves.

        Claim: changed · STEPS. Why: each number lies in 0, …, STEPS, whatever the program says.
        """
        return (L1(self.changed * STEPS),) * len(self.tally.ranges)

    @property
    def l2s(self) -> tuple[L2, ...]:
        """The same: the sum of an output is one number."""
        return (L2(squared=(self.changed * STEPS) ** 2),) * len(self.tally.ranges)

    def to_record(self) -> dict[str, Any]:
        """The question as plain values. The program is known by its text."""
        tally, names = self.tally, fields_used(self.tally)
        program = tally.program
        return {
            "dataset": self.tables[0].dataset,
            "tables": {table.name: table_record(table, names) for table in self.tables},
            "blocks": {
                "rows": relation_record(tally.relation),
                "columns": list(tally.columns),
                "program": [program.name, sha256(program.text.encode()).hexdigest()],
                "count": tally.blocks,
                "resample": tally.resample,
                "ranges": [[str(low), str(high)] for low, high in tally.ranges],
                "defaults": list(map(str, tally.defaults)),
                "seconds": str(tally.seconds),
                "memory": tally.memory,
                "trusted": tally.trusted,
                "at_once": self._feel_each_other,
                **({} if tally.sample is None else {"sample": str(tally.sample)}),
            },
        }


def _require_whole(name: str, value: object, between: tuple[int, int]) -> None:
    low, high = between
    if type(value) is not int or not low <= value <= high:
        raise SpecError(
            f"{name} is {value!r}.",
            fix=f"Use a whole number from {low} to {high:,}.",
            about="whole",
        )
