"""The door in front of one part of the units: see `noisegate.curator.partition`."""

from copy import copy

from noisegate.curator.curator import Curator
from noisegate.curator.partition import Part
from noisegate.errors import Unsupported


def within(curator: Curator, part: Part) -> Curator:
    """The same door for questions about one part of the units, and no others."""
    if type(part) is not Part:  # another one's rule may put a unit into two
        raise Unsupported("This is not a part.", fix="Make one with `Part`.", about="part")
    curator._require_tables((part.table,))  # noqa: SLF001 - same room
    inside = copy(curator)
    inside.part, inside.tables = part, part.tables(curator.tables)
    return inside
