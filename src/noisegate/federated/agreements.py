"""What owners agree on, as a file that all of them hold: who takes part, what is added up, ε.

    session = "flu, winter 2026"      # a name is used once
    epsilon = "1"
    per_unit = 1                      # how far one unit moves the numbers of all owners, in L1
    drop_outs = 1                     # so many may stop on the way
    colluding = 1                     # so many may tell the aggregator all they know
    cells = 52                        # numbers of each owner
    coefficients = 5                  # only so many Fourier coefficients of them; or leave it out
    grain = "1"                       # numbers are rounded to multiples of it; 1: they are whole

    [[owners]]
    name = "north"
    key = "base64 of an Ed25519 key"  # noisegate key new north.pem

Everything in it, keys included, is part of the agreement's name, which is in the key of every
message: owners whose files differ cannot take part in one session.
"""

import json
import tomllib
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.curator.owner import Agreement
from noisegate.errors import SpecError
from noisegate.exact import fraction
from noisegate.federated.release import LEFT, fourier_left, plain
from noisegate.files import write
from noisegate.frozen import dataclass, field, replace
from noisegate.ledger.signing import read_public
from noisegate.releases.cells.workload import Floats

CELLS_MAX: Final = 1 << 20
_FOURIER_MAX: Final = 1 << 12  # cells whose Fourier coefficients are added up
_CLAMP: Final = 1 << 36  # of one number, so that doubles are off by far less than 1
_FORM: Final = "See docs/owners.md; noisegate owner add writes such a file."
_WHOLE: Final = ("per_unit", "drop_outs", "colluding", "cells", "coefficients")


@final
@dataclass(frozen=True, kw_only=True)
class Pact:
    """An agreement with names and keys. Numbers are whole multiples of ``grain``.

    With ``coefficients`` it is about the first Fourier coefficients of a series alone.
    """

    session: str
    epsilon: Fraction
    cells: int
    per_unit: int = 1
    drop_outs: int = 0
    colluding: int = 0
    coefficients: int | None = None
    grain: Fraction = Fraction(1)
    owners: tuple[tuple[str, str], ...] = field(default=())

    def __post_init__(self) -> None:
        for name in ("epsilon", "grain"):
            object.__setattr__(self, name, fraction(getattr(self, name), name=name))
        wrong = [
            name
            for name in _WHOLE
            if not (name == "coefficients" and self.coefficients is None)
            and (type(getattr(self, name)) is not int or getattr(self, name) < 0)
        ]
        if wrong or self.epsilon <= 0 or self.grain <= 0 or not 1 <= self.cells <= CELLS_MAX:
            named = wrong[0] if wrong else "A number"
            raise SpecError(f"{named} of the agreement is out of range.", fix=_FORM, about="number")
        if type(self.session) is not str or not self.session.strip():
            raise SpecError("The session has no name.", fix=_FORM, about="session")
        if self.coefficients is not None and (self.grain != 1 or self.cells > _FOURIER_MAX):
            raise SpecError(
                "Fourier coefficients are those of whole numbers, of not too many periods.",
                fix=f"Leave out grain, or coefficients; use at most {_FOURIER_MAX:,} cells.",
                about="coefficients",
            )
        keys = [read_public(key) for _, key in self.owners]
        names = [name for name, _ in self.owners]
        if len(set(keys)) < len(keys) or len(set(names)) < len(names):
            raise SpecError(
                "Two owners have the same name or the same key.",
                fix="Every owner has one of its own.",
                about="owners",
            )
        object.__setattr__(self, "owners", tuple(zip(names, keys, strict=True)))

    @cached_property
    def agreement(self) -> Agreement:
        """What the protocol needs of it; refuses what cannot be kept."""
        block = plain(self.cells)
        extra, moved = 0, self.per_unit
        if self.coefficients is not None:
            block = fourier_left(self.cells, self.coefficients)  # type: ignore[assignment]
            extra = 2 * LEFT
        elif self.grain != 1:
            moved = ceil(self.per_unit / self.grain) + self.cells * len(self.owners)
        return Agreement(
            session=f"{self.session} {self.digest}", owners=len(self.owners),
            drop_outs=self.drop_outs, colluding=self.colluding, block=block, per_unit=moved,
            epsilon=self.epsilon, extra=extra,
        )  # fmt: skip

    @property
    def digest(self) -> str:
        """A name for exactly this file."""
        parts = [self.session, *(str(getattr(self, name)) for name in _WHOLE)]
        text = json.dumps([*parts, str(self.epsilon), str(self.grain), self.owners])
        return sha256(text.encode()).hexdigest()

    def number(self, name: str) -> int:
        """The number of an owner."""
        names = [each for each, _ in self.owners]
        if name not in names:
            raise SpecError(
                f"{name!r} is not in the agreement.",
                fix=f"Use {', '.join(names) or 'owner add first'}.",
                about="owner",
            )
        return names.index(name)

    def series(self, numbers: Sequence[float] | Floats) -> NDArray[np.int64]:
        """An owner's own numbers as the protocol takes them, clamped; and what is left out.

        Claim: a unit that moves the numbers of all owners together by ``per_unit`` in L1 moves what
            is added up by `Agreement.moved`. Why: rounded to a grain, each number of each owner
            that holds rows of the unit moves by at most its own move plus one grain; whole numbers
            move as they are, and with a grain of 1 others are refused. What Fourier coefficients
            leave out of an owner's series x is r = x - P x, P a projection; its largest |r| moves
            by at most the L2, so the L1, by which x moves, and rounded up by at most one more. Each
            owner that holds rows of the unit moves by 1 or more, so all of them by 2 per_unit.
        Rounding: doubles are off by far less than 1 here, which the one more covers.
        """
        held = np.asarray(numbers, np.float64)
        if held.shape != (self.cells,) or not np.isfinite(held).all():
            raise SpecError(
                f"There are not {self.cells} numbers.",
                fix=f"Give {self.cells} of them, one for each cell.",
                about="numbers",
            )
        if self.grain == 1 and (held != np.rint(held)).any():
            raise SpecError(
                "The numbers are not all whole: rounding would add to how far a unit moves them.",
                fix="Agree on a grain, such as 1/1000000, or round what each unit adds.",
                about="whole",
            )
        whole = np.rint(np.clip(held / float(self.grain), -_CLAMP, _CLAMP)).astype(np.int64)
        if self.coefficients is None:
            return whole
        matrix = fourier_left(self.cells, self.coefficients).matrix.toarray()[:-1, :-1]
        back = np.linalg.pinv(matrix.astype(np.float64))
        left = whole - back @ (matrix @ whole.astype(np.float64))
        return np.append(whole, ceil(float(np.abs(left).max())))

    def with_owner(self, name: str, key: str) -> "Pact":
        """The same with one owner more."""
        return replace(self, owners=(*self.owners, (name, key)))

    def to_toml(self) -> str:
        """The file."""
        lines = [
            f"session = {json.dumps(self.session, ensure_ascii=False)}",
            f'epsilon = "{self.epsilon}"',
            f"per_unit = {self.per_unit}",
            f"drop_outs = {self.drop_outs}",
            f"colluding = {self.colluding}",
            f"cells = {self.cells}",
            f'grain = "{self.grain}"',
        ]
        if self.coefficients is not None:
            lines.append(f"coefficients = {self.coefficients}")
        for name, key in self.owners:
            lines += [
                "", "[[owners]]", f"name = {json.dumps(name, ensure_ascii=False)}", f'key = "{key}"'
            ]  # fmt: skip
        return "\n".join(lines) + "\n"

    def write(self, file: str | Path) -> None:
        """Write the file."""
        write(Path(file), self.to_toml())


def read_pact(file: str | Path) -> Pact:
    """The agreement of a file."""
    try:
        said: dict[str, Any] = tomllib.loads(Path(file).read_text(encoding="utf-8"))
        owners = tuple((each["name"], each["key"]) for each in said.pop("owners", ()))
        return Pact(owners=owners, **said)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError):
        raise SpecError(
            f"{Path(file).name!r} is not an agreement.", fix=_FORM, about="agreement"
        ) from None
