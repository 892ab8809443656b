"""Joining a table without names with what everybody knows: age, town and sex."""

from collections import Counter
from math import prod

import pyarrow as pa

from noisegate.crowd.anonymity import generalised
from noisegate.gate import Gate
from noisegate.lab.attacks.base import ROOM, Facts, Outcome, Setting, Trial
from noisegate.lab.linkage import ILL, QUASI, TOWNS, illnesses, patients
from noisegate.root import open as open_gate

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
