"""Where in the SQL a refusal points: at the token that is not understood, by line and column."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot import exp

from noisegate.errors import Unsupported


@contextmanager
def at(node: exp.Expr | None) -> Iterator[None]:
    """Let refusals inside point at the node, unless they point at a part of it already."""
    try:
        yield
    except Unsupported as error:
        mark(error, node)
        raise


def mark(error: Unsupported, node: exp.Expr | None) -> None:
    """Let a refusal point at a node, unless it points at a part of it already."""
    if error.start is None and node is not None:
        error.start = _start(node)


def pointing(error: Unsupported, sql: str) -> Unsupported:
    """The refusal, with the line and the column that it points at."""
    if error.start is None:
        return error
    before = sql[: error.start]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    problem = f"Line {line}, column {column}: {error.problem}"
    return Unsupported(problem, fix=error.fix, about=error.about)


def _start(node: exp.Expr) -> int | None:
    """Where the first token of a node begins, as far as the parser tells."""
    starts = [each.meta["start"] for each in node.walk() if "start" in each.meta]
    return min(starts, default=None)
