"""What a target is: it makes cases (texts), checks one, and says what would be shorter."""

import re
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from noisegate.errors import Bug, NoisegateError

for folder in (".", "../property", "../unit"):  # whose oracles are used here
    if (where := str((Path(__file__).parent / folder).resolve())) not in sys.path:
        sys.path.insert(0, where)

PAID = frozenset({"no-range", "after-paying", "partly"})  # what refusals after a charge are about


class Finding(AssertionError):  # noqa: N818 - what it is
    """Something is wrong: its name tells kinds of findings apart, its words tell of this one."""

    def __init__(self, name, words=""):
        super().__init__(f"{name}: {words}")
        self.name = name


@dataclass(frozen=True)
class Verdict:
    """What became of a case. One case of each mark is kept."""

    accepted: bool
    marks: tuple[str, ...]


class Target(ABC):
    """One thing to fuzz."""

    name: str
    suffix = ".txt"
    keeps_refusals = True  # in the corpus

    @abstractmethod
    def make(self, random):
        """A new case."""

    @abstractmethod
    def check(self, text):
        """The verdict; raises whatever is found."""

    @abstractmethod
    def shorter(self, text):
        """Shorter cases, to be tried in turn."""


def refused(refusal):
    """The verdict of a refusal: alike where only names and numbers differ."""
    if isinstance(refusal, Bug):
        raise Finding("a bug by its own words", str(refusal))
    words = re.sub(r"'[^']*'|\"[^\"]*\"|[\w.]*\d[\w.]*", "_", refusal.problem[:2_000])
    words = re.sub(r"\b[A-Z_]{2,}\b", "_", words)
    return Verdict(
        accepted=False, marks=(f"{type(refusal).__name__} {' '.join(words.split())[:60]}",)
    )


def name_of(error):
    """The name of a finding: its own, or type and place of a crash."""
    if isinstance(error, Finding):
        return error.name
    place, step = "", error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if "/noisegate/" in file or "/tests/property/" in file:
            place = f"{file.rpartition('/')[2]}:{step.tb_frame.f_code.co_name}"
        step = step.tb_next
    return f"{type(error).__name__} in {place}"


def shorter_lists(items):
    """A list without its halves, quarters, and so on; then without single items."""
    size = len(items) // 2
    while size >= 1:
        for start in range(0, len(items), size):
            yield items[:start] + items[start + size :]
        size //= 2


__all__ = ["Finding", "NoisegateError", "Target", "Verdict", "name_of", "refused", "shorter_lists"]
