"""Regular expressions that are known to be well formed: a closed part of what engines read.

A pattern that an engine cannot compile would fail when rows are read, so it is refused before. What
is read here is valid for RE2, which takes a time that is linear in the text, whatever the pattern.
"""

from typing import Final, final

from noisegate.errors import Unsupported
from noisegate.frozen import dataclass

_LENGTH_MAX: Final = 500
_SIZE_MAX: Final = 1000  # steps of a pattern when its repetitions are written out
_CLASSES: Final = frozenset("dDwWsS")
_ESCAPES: Final = frozenset("bBAztnrf") | _CLASSES
_MARKS: Final = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_NAMES: Final = frozenset(
    f"[:{name}:]"
    for name in (
        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
        "space", "upper", "word", "xdigit",
    )
)  # fmt: skip


def groups_of(pattern: str) -> int:
    r"""How many capturing groups a pattern has, or a refusal.

    >>> groups_of(r"^(\w+)@(?:a|b){1,3}\.[[:alpha:]_-]*$")
    1
    """
    if len(pattern) > _LENGTH_MAX:
        raise _refused("is too long", 0)
    reading = _Pattern(pattern, 4 if pattern.startswith("(?i)") else 0)
    size = reading.alternatives()
    if reading.at < len(pattern):
        raise _refused("closes a bracket that was not opened", reading.at)
    if size > _SIZE_MAX:
        raise _refused("repeats too much", 0)
    return reading.groups


def require_replacement(text: str, groups: int) -> None:
    """Refuse a replacement that names a group which the pattern does not have."""
    place = 0
    while place < len(text):
        if text[place] == "\\":
            place += 1
            said = text[place : place + 1]
            digit = said.isascii() and said.isdigit()
            if said != "\\" and not (digit and int(said) <= groups):
                raise Unsupported(
                    f"The replacement has \\{said}, and the pattern has {groups} groups.",
                    fix="Use \\0 for the match, \\1 for the first group, \\\\ for a backslash.",
                    about="pattern",
                )
        place += 1


@final
@dataclass(slots=True)
class _Pattern:
    """Reads a pattern from left to right; ``groups`` counts those that capture."""

    text: str
    at: int = 0
    groups: int = 0

    @property
    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def alternatives(self) -> int:
        """Patterns that ``|`` parts; gives how many steps they have."""
        size = self._sequence()
        while self._next == "|":
            self.at += 1
            size += self._sequence()
        return size

    def _sequence(self) -> int:
        size = 1
        while self._next and self._next not in "|)":
            size += self._repeated()
            if size > _SIZE_MAX:
                raise _refused("repeats too much", self.at)
        return size

    def _repeated(self) -> int:
        start = self.at
        anchor = self._next in "^$" or self.text[start : start + 2] in ("\\b", "\\B", "\\A", "\\z")
        size = self._atom()
        times = self._times()
        if times is None:
            return size
        if anchor:
            raise _refused("repeats something that is not a character", start)
        if self._next == "?":
            self.at += 1
        if self._next and self._next in "*+?{":
            raise _refused("repeats a repetition", self.at)
        return size * times

    def _times(self) -> int | None:
        """How often the last piece is written out at most; None where it is not repeated."""
        if not self._next or self._next not in "*+?{":
            return None
        if self._next != "{":
            self.at += 1
            return 1
        end = self.text.find("}", self.at)
        low, _, high = self.text[self.at + 1 : max(end, self.at)].partition(",")
        digits = [part for part in (low, high) if part]
        if not low or not all(part.isascii() and part.isdigit() for part in digits):
            raise _refused("has a { that is not a repetition; write \\{ for the sign", self.at)
        counts = [int(part) for part in digits]
        if max(counts) > _SIZE_MAX or counts != sorted(counts):
            raise _refused("repeats too often, or its maximum is below its minimum", self.at)
        self.at = end + 1
        return max(*counts, 1)

    def _atom(self) -> int:
        sign = self._next
        self.at += 1
        if sign == "(":
            return self._group()
        if sign == "[":
            return self._class()
        if sign == "\\":
            self._escape(_ESCAPES)
        elif sign in "*+?":
            raise _refused("repeats nothing", self.at - 1)
        elif sign in "{}]":
            raise _refused(f"has a single {sign}; write \\{sign} for the sign", self.at - 1)
        return 1

    def _escape(self, known: frozenset[str]) -> str:
        sign = self._next
        if not sign or (sign not in known and sign not in _MARKS):
            raise _refused(f"has \\{sign}, which is not supported", self.at)
        self.at += 1
        return sign

    def _group(self) -> int:
        start = self.at - 1
        if self.text.startswith("?:", self.at):
            self.at += 2
        elif self._next == "?":
            raise _refused("has a group of an unsupported kind; use (?: )", start)
        else:
            self.groups += 1
        size = self.alternatives()
        if self._next != ")":
            raise _refused("has a bracket that is not closed", start)
        self.at += 1
        return size

    def _class(self) -> int:
        start = self.at - 1
        if self._next == "^":
            self.at += 1
        first = self.at
        while self._next != "]":
            if not self._next:
                raise _refused("has a [ that is not closed", start)
            low = self._member()
            if self._next == "-" and self.text[self.at + 1 : self.at + 2] not in ("", "]"):
                self.at += 1
                high = self._member()
                if len(low) != 1 or len(high) != 1 or low > high:
                    raise _refused("has an invalid range", start)
        if self.at == first:
            raise _refused("has an empty []; write \\] for the sign", start)
        self.at += 1
        return 1

    def _member(self) -> str:
        """One character of a class, or a word for several."""
        if self._next == "[":
            name = next((n for n in _NAMES if self.text.startswith(n, self.at)), None)
            if name is None:
                raise _refused("has a [ inside []; write \\[ for the sign", self.at)
            self.at += len(name)
            return name
        sign = self._next
        self.at += 1
        if sign != "\\":
            return sign
        said = self._escape(_CLASSES | frozenset("tnrf"))
        return said if said in _MARKS else f"\\{said}"


def _refused(what: str, place: int) -> Unsupported:
    return Unsupported(
        f"The regular expression {what} (at its character {place + 1}).",
        fix="Use letters, . [a-z] ( ) | ^ $ * + ? {2,5} \\d \\w \\s \\b; \\ before other signs.",
        about="pattern",
    )
