"""Why a table without names, and even a k-anonymous one, protects nobody: tried on made-up people.

>>> steps = run(people=300, k=5)
>>> [name for name, _ in steps]
['a table without names', 'k-anonymous', 'two of them', 'somebody in full']
"""

from collections import Counter
from typing import Final, TypeAlias

import pyarrow as pa

from noisegate.crowd.anonymity import anonymity, betrayed, generalised, linked
from noisegate.errors import SpecError
from noisegate.releases.cells.chance import Coins, public_coins

QUASI: Final = ("age", "town", "sex")
ILL: Final = tuple(f"diagnosis {n}" for n in range(40))
Looks: TypeAlias = tuple[str, ...]  # age, town and sex
TOWNS: Final = tuple(f"town {n}" for n in range(20))


def run(people: int = 1000, k: int = 5) -> list[tuple[str, str]]:
    """Four attacks and what each finds, in words."""
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
