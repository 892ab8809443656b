"""Sparse ratings without names: four films name the viewer, the fifth is the secret [NS08]."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.lab.attacks.base import ROOM, Facts, Outcome, Setting, Trial, number
from noisegate.root import open as open_gate

_VIEWERS, _FILMS, _EACH, _KNOWN = 1000, 400, 20, 4
_LOST = 0.2  # of all ratings, where rows were perturbed before they were published
Seen = NDArray[np.bool_]


def run(setting: Setting) -> Outcome:
    """Has viewer 0 rated the secret film?"""
    chance = setting.coins
    popular = 1 / np.arange(10, _FILMS + 10)
    seen: Seen = np.zeros((_VIEWERS, _FILMS), np.bool_)
    for viewer in range(_VIEWERS):
        seen[viewer, chance.choice(_FILMS, _EACH, replace=False, p=popular / popular.sum())] = True
    known, secret = np.flatnonzero(seen[0])[-_KNOWN - 1 : -1], np.flatnonzero(seen[0])[-1]
    tables = [_table(seen, secret, held=held) for held in range(2)]
    facts: Facts = {"viewer": {"type": "integer"}, "film": {"in": list(range(_FILMS))}}
    gates = [
        open_gate(
            _rows(table), table="ratings", epsilon=ROOM, unit="viewer", rows_per_unit=_EACH,
            columns=facts,
        )
        for table in tables
    ]  # fmt: skip
    films = ", ".join(str(film) for film in known)
    sql = (
        "SELECT COUNT(*) AS n FROM (SELECT viewer, "  # noqa: S608 - of made-up numbers
        f"COUNT(*) FILTER (WHERE film IN ({films})) AS known, "
        f"COUNT(*) FILTER (WHERE film = {secret}) AS secret FROM ratings GROUP BY viewer) "
        f"WHERE known = {_KNOWN} AND secret = 1"
    )

    def guess(table: Seen) -> bool:
        """The record that fits what is known best, and whether it has the secret film."""
        return bool(table[table[:, known].sum(axis=1).argmax(), secret])

    def perturbed(held: int) -> bool:
        return guess(tables[held] & (chance.random(seen.shape) >= _LOST))

    return setting.of_a_bit(
        title="Four films name the viewer",
        story=f"Records have no names. Who knows {_KNOWN} films that somebody rated finds "
        "the one record with all of them, and reads the rest. Leaving out a fifth of all ratings "
        "changes little. The gate counts the viewers with these films and the secret one.",
        measure="right guesses whether the target rated a film",
        factor=2,  # the film is one of a viewer's rows: a changed person
        raw=Trial("records without names", setting.played(lambda held: guess(tables[held]))),
        classic=Trial("a fifth of all ratings removed", setting.played(perturbed)),
        gate=setting.played(lambda held: number(gates[held], sql, setting.epsilon) > 1 / 2),
    )


def _table(seen: Seen, secret: np.intp, *, held: int) -> Seen:
    table = seen.copy()
    table[0, secret] = held
    return table


def _rows(table: Seen) -> pa.Table:
    viewers, films = np.nonzero(table)
    return pa.table({"viewer": viewers, "film": films})
