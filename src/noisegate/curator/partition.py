"""One of several disjoint parts of the units, and which questions are about it alone.

A partition is a table and a rule that gives each of its rows a key. Where every row is one unit,
the units of a part are the rows with its key. Otherwise they are those whose least key, over all
their rows in this table, is the part's; of their rows, those with that key are in it. So a unit
with rows of several keys counts in the first of them alone, which changes what is asked: that is
said in the plan and costs accuracy. Privacy does not rest on how the column is used.

Claim: a unit is in one part of a partition at most, and a question that `Part.require` accepts
    depends on no unit outside its part. Adjacency: add/remove one unit.
Why, of parts: the key of a row, and the least key of a unit's rows, is one value, a function of
    that row or of that unit's rows in one state of the table; it does not equal two keys, which are
    whole numbers or plain texts. Names of parts tell keys apart by type and value, and that of a
    partition tells table, snapshot and rule: two rules, or two states of the rows, are two
    partitions, whose prices add up. That one name is one state is the steward's word, as for all
    answers that are kept by it (docs/policy.md).
Why, of questions: by induction over the relation, each row's owner is in the part. It begins with
    the rows of the part, or those of them that further conditions keep: all parts of an AND are
    true where it is. Each step makes an owner's rows from that owner's rows and public rows
    alone (`transforms/stability.py`). Filters, projections, folds, windows, samples and partners
    give rows to owners that had rows before. A join has rows of owners that both private sides
    have, so one side in the part suffices; an outer join keeps all rows of its left side, so that
    side must be. A match with the unit's own rows in the part suffices, one that is negated does
    not. A union needs all its parts. What is not listed is refused. So a unit outside the part has
    no row in the relation, and the relation is the same without it.
"""

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, final

from noisegate.algebra import relation as relations
from noisegate.algebra.expression import Call, Expression, Field, Literal, domain_of, to_plain
from noisegate.algebra.schema import schema_of
from noisegate.curator.measurement import digest
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, field
from noisegate.privacy.domain import Key, Kind, TableDomain
from noisegate.privacy.event import Event, InPart
from noisegate.transforms.records import table_record
from noisegate.transforms.stability import require_one_space

_LEAST: Final = "noisegate: least key of the unit"
_KEYS: Final = {Kind.INTEGER: int, Kind.TEXT: str}
_SAME_OWNERS: Final = (
    relations.Filter,
    relations.Project,
    relations.PerUnit,
    relations.Windowed,
    relations.Sampled,
    relations.Partnered,
)


@final
class PartTables(Mapping[str, TableDomain]):
    """Tables of which one part can be asked about: readers begin with the rows of the part.

    Nobody changes them: the door compares what it is asked about with them.
    """

    __slots__ = ("_tables", "part")

    def __init__(self, tables: Mapping[str, TableDomain], part: "Part") -> None:
        self._tables, self.part = MappingProxyType(dict(tables)), part

    def __getitem__(self, name: str) -> TableDomain:
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The units of ``table`` to whose rows ``by`` gives ``key``; ``name`` is for people."""

    table: TableDomain
    by: Expression
    key: Key
    name: str = field(compare=False)

    def __post_init__(self) -> None:
        kind = domain_of(self.by, schema_of(relations.Table(self.table))).kind
        if self.table.is_public or type(self.key) is not _KEYS.get(kind):
            raise Unsupported(
                "Parts are by whole numbers or texts of a private table.",
                fix="Use a column with declared keys, or conditions.",
                about="part",
            )

    @property
    def relation(self) -> relations.Relation:
        """The rows of the part."""
        rows: relations.Relation = relations.Table(self.table)
        own = Call("eq", (self.by, Literal(self.key)))
        if self.table.is_row_level:
            return relations.Filter(rows, own)
        rows = relations.Windowed(
            rows, (relations.Window(name=_LEAST, how=relations.Fold.MIN, expression=self.by),)
        )
        least = Call("eq", (Field(_LEAST), Literal(self.key)))
        return relations.Filter(rows, Call("and", (own, least)))

    def of(self, table: TableDomain) -> relations.Relation:
        """The rows of a private table, as far as they are in the part."""
        if table == self.table:
            return self.relation
        if table.is_row_level or self.table.is_row_level or table.unit is None:
            raise Unsupported(
                f"The parts are of {self.table.name!r}, and {table.name!r} has other units.",
                fix=f"Ask about {self.table.name!r}, or about {table.name!r} as a whole.",
                about="part",
            )
        require_one_space(table.unit, self.table.unit)  # type: ignore[arg-type]  # private, above
        return relations.Matching(relations.Table(table), self.relation, ())

    def tables(self, tables: Mapping[str, TableDomain]) -> PartTables:
        """The tables behind a door, for readers."""
        return PartTables(tables, self)

    def event(self, event: Event) -> InPart:
        """The same step, on the units of this part only."""
        key = json.dumps(to_plain(Literal(self.key)))
        return InPart(event=event, partition=self.partition, part=key)

    @property
    def partition(self) -> str:
        """The name of all parts by this rule of this state of the table."""
        table = table_record(self.table, frozenset(self.table.columns))
        rule = [self.table.dataset, self.table.name, table, to_plain(self.by)]
        return digest(json.dumps(rule, sort_keys=True))

    @property
    def short(self) -> str:
        """A name that tells requests of parts apart."""
        key = json.dumps(to_plain(Literal(self.key)))
        return f"part {digest(f'{self.partition} {key}')[:12]}"

    @property
    def words(self) -> str:
        """What is asked about, for whoever reads an answer."""
        found = f"Only the part of {self.table.name!r} where {self.name}"
        if self.table.is_row_level or self.table.unit is None:
            return f"{found}."
        noun = self.table.unit.noun
        return f"{found}: each {noun} counts in the first of the parts with its rows, alone."

    def require(self, relation: relations.Relation) -> None:
        """Refuse rows that may be of units outside the part."""
        if not self._holds(relation):
            raise Unsupported(
                "The question is not about this part alone.",
                fix="Ask it of the whole table, without the partition.",
                about="part",
            )

    def _holds(self, relation: relations.Relation) -> bool:
        """Whether every row's owner is in the part; see the proof above."""
        (below, kept), (rows, own) = _unfiltered(relation), _unfiltered(self.relation)
        if below == rows and own <= kept:
            return True
        if isinstance(relation, _SAME_OWNERS):
            return self._holds(relation.of)
        if isinstance(relation, relations.Join):
            inner = relation.kind is relations.JoinKind.INNER
            return self._holds(relation.left) or (inner and self._holds(relation.right))
        if isinstance(relation, relations.Matching):
            matched = not relation.negated and self._holds(relation.other)
            return matched or self._holds(relation.of)
        if isinstance(relation, relations.Union):
            return all(map(self._holds, relation.parts))
        return False


def _unfiltered(relation: relations.Relation) -> tuple[relations.Relation, frozenset[Expression]]:
    """What filters are over, and all conditions that they ask for together."""
    found: set[Expression] = set()
    while type(relation) is relations.Filter:
        found |= _conjuncts(relation.condition)
        relation = relation.of
    return relation, frozenset(found)


def _conjuncts(condition: Expression) -> set[Expression]:
    if type(condition) is Call and condition.function == "and":
        return set().union(*map(_conjuncts, condition.args))
    return {condition}
