# ruff: noqa: T201 - a program that prints
"""Keeps of a corpus, for each target, its findings and the shortest cases that have all its marks."""

import sys

from driver import TARGETS, files_of, read_case, target_of, tried


def main():
    for name in sys.argv[1:] or TARGETS:
        target, known, gone = target_of(name), set(), 0
        files = sorted(
            files_of(target),
            key=lambda file: (not file.name.startswith("finding"), file.stat().st_size),
        )
        for file in files:
            verdict, error = tried(target, read_case(file))
            marks = (
                {(verdict.accepted, mark) for mark in verdict.marks} if error is None else {name}
            )
            if not file.name.startswith("finding") and marks <= known:
                file.unlink()
                gone += 1
            known |= marks
        print(f"{name}: {len(files) - gone} kept, {gone} removed")


if __name__ == "__main__":
    main()
