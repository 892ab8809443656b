"""Blocks of rows for a program: what an engine is asked for in sample and aggregate."""

from fractions import Fraction
from typing import Final, final

from noisegate.algebra.relation import Relation
from noisegate.frozen import dataclass

STEPS: Final = 1 << 20  # whole numbers from 0 to here stand for a range


@final
@dataclass(frozen=True, slots=True)
class Program:
    """The text of a program, and the function in it that makes numbers of rows.

    ``imports`` are modules to load before it runs, beyond those that need no file.
    """

    text: str
    name: str
    imports: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Numbers that a program makes of each block of rows; owners are dealt to blocks by chance.

    All rows of an owner are in one block, whichever the door's secret says; rows are in an order
    that is as secret. With ``resample`` owners are dealt so often anew, and all blocks are asked.
    A number is clamped into its range; where a program gives none, that of ``defaults`` stands.
    A program has ``seconds`` and ``memory`` (megabytes). Nobody locks a ``trusted`` one in.
    ``workers`` blocks run at once. With a ``sample``, each owner is in a secret sample with that
    chance, and only those in it are dealt: the same ones in all deals.
    """

    relation: Relation
    columns: tuple[str, ...]
    program: Program
    blocks: int
    resample: int = 1
    ranges: tuple[tuple[Fraction, Fraction], ...]
    defaults: tuple[Fraction, ...]
    seconds: Fraction
    memory: int
    trusted: bool = False
    workers: int = 1
    sample: Fraction | None = None

    @property
    def answers(self) -> int:
        """How many blocks are asked in all."""
        return self.blocks * self.resample
