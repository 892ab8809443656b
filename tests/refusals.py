"""Which refusal it is, by its stable code: words may improve without breaking a test.

``with pytest.raises(SpecError, check=about("axis")):``, or, in tables, ``check=listed("axis 'sex'")``. The words themselves are pinned once, in
``golden/words.txt``.
"""

import re
from collections.abc import Callable

from noisegate.errors import NoisegateError


def about(*subjects: str) -> Callable[[NoisegateError], bool]:
    """Whether a refusal is about one of these, the part of its code behind the dot."""

    def check(refusal: NoisegateError) -> bool:
        assert refusal.about in subjects, f"it is about {refusal.about!r}: {refusal}"
        return True

    return check


def listed(entry: str) -> Callable[[NoisegateError], bool]:
    """The same from a table: subjects with | between, then names of the input that it repeats.

    ``*`` is any subject.
    """
    subjects, _, names = entry.partition(" ")

    def check(refusal: NoisegateError) -> bool:
        assert re.search(names, str(refusal)), f"it does not say {names!r}: {refusal}"
        return subjects == "*" or about(*subjects.split("|"))(refusal)

    return check
