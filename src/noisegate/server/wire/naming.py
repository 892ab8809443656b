"""Names of columns that a question does not name, as Postgres gives them."""

from sqlglot import exp

_UNKNOWN = "?column?"


def with_names(tree: exp.Expr) -> exp.Expr:
    """The same question in which every item of its SELECTs has a name."""
    for select in list(tree.find_all(exp.Select)):
        for item in list(select.expressions):
            if not isinstance(item, exp.Alias | exp.Star | exp.Column | exp.Unnest):
                item.replace(exp.alias_(item.copy(), _name(item), quoted=True))
    return tree


def _name(item: exp.Expr) -> str:  # noqa: PLR0911 - one for each kind
    """Of a function its own, of a cast what is cast or else the type, of all else none."""
    plain = item.unnest()
    if isinstance(plain, exp.Column | exp.Dot):
        return plain.name
    if isinstance(plain, exp.Cast):
        inner = _name(plain.this)
        return plain.to.sql(dialect="postgres").lower() if inner == _UNKNOWN else inner
    if isinstance(plain, exp.Case):
        return "case"
    if isinstance(plain, exp.Window):
        return _name(plain.this)
    if isinstance(plain, exp.Anonymous):
        return str(plain.this).lower()
    if isinstance(plain, exp.CurrentVersion):
        return "version"
    if isinstance(plain, exp.Array):
        return "array"
    if isinstance(plain, exp.Func) and not isinstance(plain, exp.Connector | exp.Predicate):
        return plain.sql_name().lower()
    return _UNKNOWN
