"""What functions are read from: the values of nodes, and the kinds of columns that have none."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field, Schema, domain_of
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, field
from noisegate.privacy.domain import Kind
from noisegate.sql.reading.literals import agreed, is_moment, kind_of, literal
from noisegate.sql.reading.untyped import Untyped, taken_for, together
from noisegate.sql.reading.values import decimals
from noisegate.sql.reading.words import Node, attempt, mark

Hook: TypeAlias = Callable[[Node], Expression | None]
_CHOICES: Final = (exp.Coalesce, exp.Least, exp.Greatest, exp.Nullif)


def both(*conditions: Expression) -> Expression:
    """All conditions, joined by AND."""
    return conditions[0] if len(conditions) == 1 else Call("and", conditions)


@dataclass(frozen=True, slots=True)
class Operands:
    """Reads expressions over ``schema``; ``hook`` reads columns, and anything else it knows."""

    schema: Schema
    hook: Hook
    untyped: Mapping[str, Untyped] = field(default_factory=dict)

    def read(self, node: Node, kind: Kind | None = None) -> Expression:
        """The expression that the node means, checked against the schema.

        A column without a type is taken for the ``kind``.
        """
        found = self._read(node) if kind is None else self.taken(node, kind)
        try:
            domain_of(found, self.schema)
        except Unsupported as error:
            mark(error, self._innermost(node))
            raise
        return found

    def _innermost(self, node: Node) -> Node:
        """The smallest part of a node whose kinds do not fit."""
        for child in node.iter_expressions():
            if isinstance(child, exp.Condition) and not isinstance(child, exp.Query):
                read = attempt(lambda child=child: self._read(child))  # type: ignore[misc]
                if read is not None and attempt(lambda: domain_of(read, self.schema)) is None:  # noqa: B023
                    return self._innermost(child)
        return node

    def condition(self, node: Node) -> Expression:
        """The same for something that is true or false."""
        found = self.read(node, Kind.BOOLEAN)
        if self.kind(found) is not Kind.BOOLEAN:
            raise Unsupported(
                "A condition is not a boolean.", fix="Compare it with something.", about="boolean"
            )
        return found

    def kind(self, value: Expression) -> Kind:
        """The kind of a value."""
        return kind_of(value, self.schema)

    def _read(self, node: Node) -> Expression:
        try:
            return self._meant(node)
        except Unsupported as error:
            mark(error, node)
            raise

    @abstractmethod
    def _meant(self, node: Node) -> Expression:
        """What a node means, by its function."""

    def without_type(self, node: Node) -> Untyped | None:
        """The column without a type that a node is, or the choice of several that it is."""
        inner = node.unnest()
        if self.untyped and type(inner) in _CHOICES:
            rest = [inner.expression] if inner.args.get("expression") else inner.expressions
            parts = [self.without_type(part) for part in (inner.this, *rest)]
            return None if None in parts else together(inner.sql(dialect="duckdb"), parts)
        known = self.untyped and isinstance(inner, exp.Column)
        found = attempt(lambda: self.hook(inner)) if known else None
        return self.untyped.get(found.name) if type(found) is Field else None

    def taken(self, node: Node, kind: Kind) -> Expression:
        """What the node means, where a column without a type is taken for a kind."""
        untyped = self.without_type(node)
        if untyped is not None:
            untyped.take(kind)
        return self._read(node)

    def raw(self, node: Node) -> Expression:
        """The same, where such a column is the text that it is."""
        found = self.hook(node.unnest()) if self.without_type(node) is not None else None
        return self._read(node) if found is None else found

    def _in_order(self, *nodes: Node) -> None:
        """A column without a type beside a day in quotes is a date; else its texts are compared."""
        day = any(is_moment(literal(node)) for node in nodes)
        for untyped in map(self.without_type, nodes):
            if untyped is not None and day:
                untyped.take(Kind.TIMESTAMP)
            elif untyped is not None:
                untyped.mark(compared=True)

    def agreed(self, *nodes: Node) -> tuple[Expression, ...]:
        """Values that can stand beside each other."""
        values = [self._read(node) for node in nodes]
        open_ones = [self.without_type(node) for node in nodes]
        kind = taken_for(zip(values, open_ones, strict=True), self.schema)
        for place, untyped in enumerate(open_ones):
            if untyped is not None and kind is not None:
                values[place] = self.taken(nodes[place], kind)
        values = agreed(values, self.schema)
        if any(map(_is_double, nodes)):
            values = [decimals.doubled(value, self.schema) for value in values]
        return tuple(decimals.beside(values, self.schema))

    def compared(self, *nodes: Node) -> tuple[Expression, ...]:
        """Values that are told from each other, so decimals are exact."""
        untyped = [each for each in map(self.without_type, nodes) if each is not None]
        for each in untyped if len(untyped) > 1 else ():
            each.mark(compared=True)
        return tuple(decimals.exact(value, self.schema) for value in self.agreed(*nodes))

    def operand(self, node: Node, kind: Kind = Kind.NUMBER) -> Expression:
        """What is computed with: 1e-2 is a double in SQL, and makes doubles."""
        value = self.taken(node, kind)
        return Call("to_number", (value,)) if _is_double(node) else value


def _is_double(node: Node) -> bool:
    """A constant such as 1e-2."""
    plain = node.unnest()
    return isinstance(plain, exp.Literal) and not plain.is_string and "e" in plain.name.lower()
