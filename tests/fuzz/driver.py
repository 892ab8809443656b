# ruff: noqa: T201 - a program that prints
"""Runs fuzzers for a while, in two processes: `python tests/fuzz/driver.py --seconds 600 [TARGET...]`.

Cases of a new kind are kept in `corpus/`; what fails is made shorter and kept there too, as
`finding-*`, and fails ever after until it is mended.
"""

import argparse
import importlib
import logging
import signal
import sys
import time
import traceback
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from multiprocessing import get_context
from pathlib import Path
from random import Random

from fuzz_target import Finding, name_of

logging.disable(logging.WARNING)  # sqlglot says aloud what it cannot parse
HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
TARGETS = ("sql", "meaning", "claims", "policies", "ledgers", "releases", "orders", "analysts")
SLOW = 60  # seconds of the processor that one case may take
TIMERS = {  # how many times that each may run: others may be busy
    signal.SIGPROF: (signal.ITIMER_PROF, 1),
    signal.SIGALRM: (signal.ITIMER_REAL, 20),
}


def known():
    """Names of findings that are not mended, each behind its target; the rest of a line says why."""
    lines = (HERE / "known.txt").read_text().splitlines()
    return {line.partition(" # ")[0].strip() for line in lines if line.strip()}


def target_of(name):
    return importlib.import_module(f"fuzz_{name}").TARGET


@dataclass
class Tally:
    """Counts of a run."""

    cases: int = 0
    accepted: int = 0
    marks: Counter = field(default_factory=Counter)
    findings: dict = field(default_factory=dict)  # name: (how often, shortest case, words)

    @property
    def refusals(self):
        return sum(1 for kept, _ in self.marks if not kept)

    def line(self, name):
        refused = self.cases - self.accepted - sum(n for n, *_ in self.findings.values())
        return (
            f"{name:10} {self.cases:8} cases {self.accepted:8} accepted {refused:8} refused "
            f"{self.refusals:5} distinct refusals {len(self.findings):3} findings"
        )

    def add(self, other):
        self.cases, self.accepted = self.cases + other.cases, self.accepted + other.accepted
        self.marks.update(other.marks)
        for name, (count, text, words) in other.findings.items():
            before = self.findings.get(name, (0, text, words))
            shortest = min((before[1:], (text, words)), key=lambda each: len(each[0]))
            self.findings[name] = before[0] + count, *shortest


@contextmanager
def time_limit(seconds=SLOW):
    """A case that takes longer is a finding."""

    def late(*_):
        raise Finding("slow", f"longer than {seconds} s")

    before = {each: signal.signal(each, late) for each in TIMERS}
    for timer, times in TIMERS.values():
        signal.setitimer(timer, times * seconds)
    try:
        yield
    finally:
        for timer, _ in TIMERS.values():
            signal.setitimer(timer, 0)
        for each, handler in before.items():
            signal.signal(each, handler)


def tried(target, text):
    """The verdict and no error, or no verdict and the error."""
    try:
        with time_limit():
            return target.check(text), None
    except (Exception, RecursionError, MemoryError) as error:  # noqa: BLE001 - all of them are findings
        return None, error


def fuzz(target, seed, *, seconds=inf, cases=inf, keep=None):
    """Try new cases for so long, or so many of them: what they are depends on the seed alone."""
    random, tally, until = Random(seed), Tally(), time.monotonic() + seconds
    while tally.cases < cases and time.monotonic() < until:
        text = target.make(random)
        verdict, error = tried(target, text)
        tally.cases += 1
        if verdict is None:
            note(target, text, error, tally)
            continue
        tally.accepted += verdict.accepted
        if keep is not None:
            keep(target, text, verdict)
        tally.marks.update((verdict.accepted, mark) for mark in verdict.marks)
    return tally


def note(target, text, error, tally):
    name = name_of(error)
    words = "".join(traceback.format_exception(error))
    count, shortest, kept = tally.findings.get(name, (0, text, words))
    if count < 3:  # the first few of a kind
        text, words = minimised(target, text, name, words)
        if count == 0 or len(text) < len(shortest):
            shortest, kept = text, words
    tally.findings[name] = count + 1, shortest, kept


def minimised(target, text, name, words, seconds=30):
    """A shorter case with a finding of the same name."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for other in target.shorter(text):
            if time.monotonic() > until:
                break
            if len(other) < len(text):
                _, error = tried(target, other)
                if error is not None and name_of(error) == name:
                    text, words = other, "".join(traceback.format_exception(error))
                    break
        else:
            break
    return text, words


# the corpus


def files_of(target):
    return sorted((CORPUS / target.name).glob(f"*{target.suffix}"))


def read_case(file):
    return file.read_bytes().decode("utf-8", "surrogatepass")


def write_case(target, text, kind):
    folder = CORPUS / target.name
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{kind}-{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}{target.suffix}"
    (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))


class Keeping:
    """Keeps the first case of each mark that the corpus lacks."""

    LONG = 2000

    def __init__(self, known):
        self.known = known

    def __call__(self, target, text, verdict):
        marks = {(verdict.accepted, mark) for mark in verdict.marks}
        wanted = verdict.accepted or target.keeps_refusals
        if wanted and not marks <= self.known and len(text) < self.LONG:
            self.known |= marks
            write_case(target, text, "accepted" if verdict.accepted else "refused")


def replay(target, seconds=inf):
    """The cases of the corpus again, for so long: their marks, and what is found."""
    tally, until = Tally(), time.monotonic() + seconds
    for file in files_of(target):
        if time.monotonic() > until:
            break
        verdict, error = tried(target, read_case(file))
        tally.cases += 1
        if verdict is None:
            words = "".join(traceback.format_exception(error))
            tally.findings[f"{file.name}: {name_of(error)}"] = 1, read_case(file), words
        else:
            tally.accepted += verdict.accepted
            tally.marks.update((verdict.accepted, mark) for mark in verdict.marks)
    return tally


def work(job):
    """One process: a target for so long."""
    name, seconds, seed, grow = job
    target = target_of(name)
    keep = None
    began = time.monotonic()
    if grow:
        keep = Keeping(set(replay(target, seconds / 5).marks))
    return name, fuzz(target, seed, seconds=seconds - (time.monotonic() - began), keep=keep)


def main():
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("targets", nargs="*", default=TARGETS, help=", ".join(TARGETS))
    asked.add_argument("--seconds", type=float, default=600)
    asked.add_argument("--seed", type=int, default=None)
    asked.add_argument("--processes", type=int, default=2)
    asked.add_argument("--no-corpus", action="store_true", help="keep nothing")
    said = asked.parse_args()
    seed = said.seed if said.seed is not None else time.time_ns()
    share = said.seconds / len(said.targets)  # each process works on each target for this long
    jobs = [
        (name, share, f"{seed}-{name}-{n}", not said.no_corpus)
        for name in said.targets for n in range(said.processes)
    ]  # fmt: skip
    totals = {name: Tally() for name in said.targets}
    with get_context("spawn").Pool(said.processes, maxtasksperchild=1) as pool:
        for name, tally in pool.imap_unordered(work, jobs, chunksize=1):
            totals[name].add(tally)
            print(totals[name].line(name), flush=True)
    found = False
    for name, tally in totals.items():
        for what, (count, text, words) in tally.findings.items():
            is_known = f"{name}: {what}" in known()
            found |= not is_known
            print(
                f"\n--- {'known ' * is_known}{name}: {what} ({count} times)\n{text!r}\n{words[-3000:]}"
            )
            if not said.no_corpus and not is_known:
                write_case(target_of(name), text, "finding")
    print(f"\nseed {seed}")
    for name, tally in totals.items():
        print(tally.line(name))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
