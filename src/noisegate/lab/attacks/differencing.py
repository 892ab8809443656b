"""Two large groups that differ in one person: everybody, and everybody but her."""

from noisegate.lab.attacks.base import Outcome, Setting, Trial, listed, number

_PEOPLE, _TARGET = 400, 17
_LEAST = 5  # a group of fewer is not counted
_ALL = "SELECT COUNT(*) AS n FROM infected"
_BUT_ONE = f"{_ALL} WHERE place <> {_TARGET}"


def run(setting: Setting) -> Outcome:
    """Is person 17 on the list? The difference of the two counts says so."""
    gates = listed(_PEOPLE, _TARGET)

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

    return setting.of_a_bit(
        title="Everybody, and everybody but her",
        story="Two counts of hundreds of people are harmless one by one. They differ in one "
        "person, so their difference is that person's secret. The gate charges both counts to "
        "the same budget and the noise of each hides one person.",
        measure="right guesses whether the target is on the list",
        raw=Trial("exact counts", setting.played(exact)),
        classic=Trial(f"groups below {_LEAST} suppressed", setting.played(suppressed)),
        gate=setting.played(noisy),
    )
