"""Two large groups that differ in one person: everybody, and everybody but her."""

import pyarrow as pa

from noisegate.lab.attacks.base import Outcome, Setting, Trial, number, worlds

_PEOPLE, _TARGET = 400, 17
_LEAST = 5  # a group of fewer is not counted
_ALL = "SELECT COUNT(*) AS n FROM infected"
_BUT_ONE = f"{_ALL} WHERE place <> {_TARGET}"


def run(setting: Setting) -> Outcome:
    """Is person 17 on the list? The difference of the two counts says so."""
    listed = pa.table({"place": range(_PEOPLE)})
    gates = worlds(
        "infected", listed, _TARGET, {"place": {"type": "integer", "between": [0, _PEOPLE - 1]}}
    )

    def exact(held: int) -> bool:
        everybody, but_one = _PEOPLE - 1 + held, _PEOPLE - 1
        return everybody - but_one == 1

    def suppressed(held: int) -> bool:
        """Both groups are far above the threshold: nothing is hidden."""
        counts = [_PEOPLE - 1 + held, _PEOPLE - 1]
        return min(counts) >= _LEAST and counts[0] - counts[1] == 1

    def noisy(held: int) -> bool:
        half = setting.epsilon / 2
        return number(gates[held], _ALL, half) - number(gates[held], _BUT_ONE, half) > 1 / 2

    return Outcome(
        name="differencing",
        title="Everybody, and everybody but her",
        story="Two counts of hundreds of people are harmless one by one. They differ in one "
        "person, so their difference is that person's secret. The gate charges both counts to "
        "the same budget and the noise of each hides one person.",
        measure="right guesses whether the target is on the list",
        epsilon=setting.epsilon,
        chance=0.5,
        bound=setting.within(),
        raw=Trial("exact counts", setting.played(exact)),
        classic=Trial(f"groups below {_LEAST} suppressed", setting.played(suppressed)),
        gate=Trial(setting.gate_name, setting.played(noisy)),
    )
