"""Cases of a claim: a few in every run, all of them in `make long`."""

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_long(cases: Iterable[Any], *usual: Any) -> list[Any]:
    """The cases, those that are not ``usual`` in long runs only."""
    return [each if each in usual else pytest.param(each, marks=pytest.mark.long) for each in cases]
