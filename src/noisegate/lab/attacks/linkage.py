"""Joining a table without names with what everybody knows: age, town and sex, or a few films."""

from collections import Counter
from math import prod
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.crowd.anonymity import anonymity, betrayed, generalised, linked
from noisegate.errors import SpecError
from noisegate.gate import Gate
from noisegate.lab.attacks.outcome import Outcome, Trial
from noisegate.lab.attacks.run import ROOM, Facts, Setting, number
from noisegate.releases.cells.chance import Coins, public_coins
from noisegate.root import open as open_gate

QUASI: Final = ("age", "town", "sex")
ILL: Final = tuple(f"diagnosis {n}" for n in range(40))
Looks: TypeAlias = tuple[str, ...]  # age, town and sex
TOWNS: Final = tuple(f"town {n}" for n in range(20))


def steps_of(people: int = 1000, k: int = 5) -> list[tuple[str, str]]:
    """Why a table without names, and even a k-anonymous one, protects nobody: in words.

    >>> steps = steps_of(people=300, k=5)
    >>> [name for name, _ in steps]
    ['a table without names', 'k-anonymous', 'two of them', 'somebody in full']
    """
    if not 1 <= k <= people:
        raise SpecError("k is not between 1 and the number of people.", fix=f"Use 1 to {people}.")
    chance = public_coins("made-up patients")
    ours, *others = (patients(chance, count) for count in (people, people, people))
    exact = linked(ours.select(QUASI), ours, QUASI, sensitive="ill")
    visitors = ours.slice(0, people // 5)  # of two hospitals, which have patients of their own
    twins = [generalised(pa.concat_tables([visitors, own]), QUASI, k) for own in others]
    facts = anonymity(twins[0], QUASI, sensitive="ill")
    shown = betrayed(twins[0], 0)
    still = anonymity(shown, [*QUASI, *(f"{name} of one" for name in ours.column_names)])
    joined = (
        f"joined with a public list of age, town and sex, it reveals the illness of {exact:,} of "
        f"{people:,} people with certainty"
    )
    both = (
        f"of {visitors.num_rows:,} people who went to two hospitals with one illness, "
        f"{_singled(twins, visitors.num_rows):,} have one alone that both {k}-anonymous tables list"
    )
    full = f"one row appended to every row: still {still.k}-anonymous, and all of it can be read"
    return [
        ("a table without names", joined),
        ("k-anonymous", str(facts)),
        ("two of them", both),
        ("somebody in full", full),
    ]


def patients(chance: Coins, count: int) -> pa.Table:
    """People whose illness has nothing to do with their age, town and sex."""
    return pa.table(
        {
            "age": chance.integers(0, 90, count),
            "town": [TOWNS[n] for n in chance.integers(0, len(TOWNS), count)],
            "sex": pa.array(chance.choice(["f", "m"], count)),
            "ill": pa.array(chance.choice(ILL, count)),
        }
    )


def illnesses(table: pa.Table) -> tuple[list[Looks], dict[Looks, Counter[str]]]:
    """How each person looks, and how often each illness stands beside those who look so."""
    keys = list(zip(*(table[name].to_pylist() for name in QUASI), strict=True))
    groups: dict[Looks, Counter[str]] = {}
    for key, ill in zip(keys, table["ill"].to_pylist(), strict=True):
        groups.setdefault(key, Counter())[ill] += 1
    return keys, groups


def _singled(tables: list[pa.Table], count: int) -> int:
    """How many of the first people have one illness alone that both tables list for them."""
    lists = []
    for table in tables:
        keys, groups = illnesses(table)
        lists.append([groups[key].keys() for key in keys[:count]])
    return sum(len(a & b) == 1 for a, b in zip(*lists, strict=True))


_PEOPLE, _K = 1000, 5
_FACTS: Facts = {
    "age": {"type": "integer", "between": [0, 89]},
    "town": {"in": list(TOWNS)},
    "sex": {"in": ["f", "m"]},
    "ill": {"in": list(ILL)},
}


def one_table(setting: Setting) -> Outcome:
    """The illness of people whose age, town and sex are known, from one table."""
    people = patients(setting.coins, _PEOPLE)
    coarse = generalised(people, QUASI, _K)
    gate = _gate(people)
    return Outcome(
        name=setting.name,
        title="Linkage by age, town and sex",
        story="Names are gone, but few people share an age, a town and a sex with somebody. "
        f"Coarser values, so that {_K} people look alike, still leave a short list of illnesses. "
        "The gate answers a count by illness of just such people, with noise that hides one.",
        measure="people whose illness is guessed right",
        epsilon=setting.epsilon,
        chance=1 / len(ILL),
        bound=setting.within(2, len(ILL) - 1),  # another illness: one row leaves, another comes
        raw=Trial("a table without names", _right(people, [people], _PEOPLE)),
        classic=Trial(f"a {_K}-anonymous table", _right(people, [coarse], _PEOPLE)),
        gate=Trial(setting.gate_name, _right_by_gates(people, [gate], setting)),
    )


def two_hospitals(setting: Setting) -> Outcome:
    """The same from two tables of people who went to both hospitals."""
    visitors = _PEOPLE // 5
    both, *others = (
        patients(setting.coins, count) for count in (visitors, _PEOPLE - visitors, _PEOPLE)
    )
    tables = [pa.concat_tables([both, own]) for own in others]
    coarse = [generalised(table, QUASI, _K) for table in tables]
    gates = [_gate(table) for table in tables]
    return Outcome(
        name=setting.name,
        title="Two hospitals, one patient",
        story=f"Each hospital publishes a {_K}-anonymous table and neither knows of the other. Who "
        "went to both has one illness that both tables list. Anonymity does not compose; ε does: "
        "two gates that each spend ε allow what one gate allows that spends 2 ε.",
        measure="visitors of both whose illness is guessed right",
        epsilon=setting.epsilon,
        chance=1 / len(ILL),
        bound=setting.within(4, len(ILL) - 1),
        raw=Trial("two tables without names", _right(both, tables, visitors)),
        classic=Trial(f"two {_K}-anonymous tables", _right(both, coarse, visitors)),
        gate=Trial(setting.gate_name + " each", _right_by_gates(both, gates, setting)),
    )


def _right(people: pa.Table, tables: list[pa.Table], known: int) -> float:
    """How often the illness most often seen beside a person's place in all tables is theirs.

    The people are the first rows of every table, so that their places in it are known here; the
    attacker finds them by the values of their age, town and sex.
    """
    lists = [illnesses(table) for table in tables]
    right = 0
    for person, ill in enumerate(people["ill"].to_pylist()[:known]):
        seen = [groups[keys[person]] for keys, groups in lists]
        likely = {name: prod(each[name] for each in seen) for name in ILL}
        right += max(likely, key=lambda name: likely[name]) == ill
    return right / known


def _gate(table: pa.Table) -> Gate:
    return open_gate(table, table="patients", epsilon=ROOM, columns=_FACTS)


def _right_by_gates(people: pa.Table, gates: list[Gate], setting: Setting) -> float:
    """Each person in turn, with a new ε: counts by illness of those who look like them."""
    right: int = 0
    for person in people.slice(0, setting.times).to_pylist():
        sql = (
            "SELECT ill, COUNT(*) AS n FROM patients "  # noqa: S608 - of made-up values
            f"WHERE age = {person['age']} AND town = '{person['town']}' "
            f"AND sex = '{person['sex']}' GROUP BY ill"
        )
        counts: Counter[str] = Counter()
        for gate in gates:
            for row in gate.sql(sql, epsilon=setting.epsilon, fresh=True).table.to_pylist():
                counts[row["ill"]] += row["n"]
        right += bool(counts.most_common(1)[0][0] == person["ill"])
    return float(right / min(setting.times, people.num_rows))


_VIEWERS, _FILMS, _RATED, _FILMS_KNOWN = 1000, 400, 20, 4
_LOST = 0.2  # of all ratings, where rows were perturbed before they were published
Seen = NDArray[np.bool_]


def ratings(setting: Setting) -> Outcome:
    """Has viewer 0 rated the secret film? Four films name the viewer [NS08]."""
    chance = setting.coins
    popular = 1 / np.arange(10, _FILMS + 10)
    seen: Seen = np.zeros((_VIEWERS, _FILMS), np.bool_)
    for viewer in range(_VIEWERS):
        seen[viewer, chance.choice(_FILMS, _RATED, replace=False, p=popular / popular.sum())] = True
    known, secret = np.flatnonzero(seen[0])[-_FILMS_KNOWN - 1 : -1], np.flatnonzero(seen[0])[-1]
    tables = [_with_secret(seen, secret, held=held) for held in range(2)]
    facts: Facts = {"viewer": {"type": "integer"}, "film": {"in": list(range(_FILMS))}}
    gates = [
        open_gate(
            _ratings_of(table), table="ratings", epsilon=ROOM, unit="viewer", rows_per_unit=_RATED,
            columns=facts,
        )
        for table in tables
    ]  # fmt: skip
    films = ", ".join(str(film) for film in known)
    sql = (
        "SELECT COUNT(*) AS n FROM (SELECT viewer, "  # noqa: S608 - of made-up numbers
        f"COUNT(*) FILTER (WHERE film IN ({films})) AS known, "
        f"COUNT(*) FILTER (WHERE film = {secret}) AS secret FROM ratings GROUP BY viewer) "
        f"WHERE known = {_FILMS_KNOWN} AND secret = 1"
    )

    def guess(table: Seen) -> bool:
        """The record that fits what is known best, and whether it has the secret film."""
        return bool(table[table[:, known].sum(axis=1).argmax(), secret])

    def perturbed(held: int) -> bool:
        return guess(tables[held] & (chance.random(seen.shape) >= _LOST))

    return setting.of_a_bit(
        title="Four films name the viewer",
        story=f"Records have no names. Who knows {_FILMS_KNOWN} films that somebody rated finds "
        "the one record with all of them, and reads the rest. Leaving out a fifth of all ratings "
        "changes little. The gate counts the viewers with these films and the secret one.",
        measure="right guesses whether the target rated a film",
        factor=2,  # the film is one of a viewer's rows: a changed person
        raw=Trial("records without names", setting.played(lambda held: guess(tables[held]))),
        classic=Trial("a fifth of all ratings removed", setting.played(perturbed)),
        gate=setting.played(lambda held: number(gates[held], sql, setting.epsilon) > 1 / 2),
    )


def _with_secret(seen: Seen, secret: np.intp, *, held: int) -> Seen:
    table = seen.copy()
    table[0, secret] = held
    return table


def _ratings_of(table: Seen) -> pa.Table:
    viewers, films = np.nonzero(table)
    return pa.table({"viewer": viewers, "film": films})
