"""Commands on a ledger: show, verify, export, change a budget."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisegate.cli.app import Json, Where, ledger_app
from noisegate.cli.printing import print_table, say, say_json
from noisegate.errors import SpecError

if TYPE_CHECKING:
    from noisegate.ledger.store import Ledger


@ledger_app.command("show")
def ledger_show(
    where: Where,
    entries: Annotated[bool, typer.Option("--entries", help="List every entry.")] = False,
    as_json: Json = False,
) -> None:
    """Show the accounts: budget, spent, left."""
    with _ledger(where) as ledger:
        balances = [ledger.balance(name) for name in ledger.accounts()]
        log = ledger.history() if entries else []
    rows = [
        (each.account, str(each.budget), str(each.spent), f"{each.remaining:left}", each.accountant,
         str(each.reservations), str(each.unsettled))
        for each in balances
    ]  # fmt: skip
    names = ("account", "budget", "spent", "left", "accountant", "questions", "unsettled")
    lines = [(str(e.seq), e.at[:19], e.kind, e.hash[:12], _subject(e.body)) for e in log]
    if as_json:
        shown: dict[str, Any] = {"accounts": [dict(zip(names, row, strict=True)) for row in rows]}
        shown |= {"entries": [{"seq": e.seq, "kind": e.kind, "at": e.at, "hash": e.hash,
                               **e.body} for e in log]} if entries else {}  # fmt: skip
        say_json(shown)
        return
    print_table("accounts", names, rows)
    if entries:
        print_table("entries", ("no.", "at (UTC)", "kind", "hash", "about"), lines)


@ledger_app.command("verify")
def ledger_verify(
    where: Where,
    head: Annotated[str | None, typer.Option(help="The head hash noted earlier.")] = None,
) -> None:
    """Recheck the chain, every price, every sum and every stored answer."""
    with _ledger(where) as ledger:
        found = ledger.verify(pinned_head=head)
    for problem in found.problems:
        say(problem)
    say(f"{'ok' if found.ok else 'NOT OK'}: {found.entries} entries, head {found.head}")
    if not found.ok:
        raise typer.Exit(5)


@ledger_app.command("export")
def ledger_export(where: Where) -> None:
    """Write the log with its answers as JSON lines to standard output."""
    with _ledger(where) as ledger:
        ledger.export(sys.stdout)


@ledger_app.command("budget")
def ledger_budget(
    where: Where,
    account: Annotated[str, typer.Argument(help="Which account.")],
    epsilon: Annotated[str, typer.Argument(help="Its new ε.")],
    reason: Annotated[str, typer.Option(help="Why; it goes into the log.")],
    delta: Annotated[str | None, typer.Option(help="Its new δ; left out, it stays.")] = None,
) -> None:
    """Change an account's budget. A steward's act: it is logged, and what is spent stays spent."""
    from noisegate.privacy.loss import ApproxDP  # noqa: PLC0415

    with _ledger(where) as ledger:
        kept = ledger.balance(account).budget.delta if delta is None else delta
        found = ledger.change_budget(account, ApproxDP(epsilon, kept), reason=reason)
    say(f"{account}: budget {found.budget}, spent {found.spent}, left {found.remaining:left}")


def _ledger(where: str) -> "Ledger":
    from noisegate.connect import ledger_beside  # noqa: PLC0415
    from noisegate.ledger.open import open_ledger  # noqa: PLC0415

    if "://" in where:
        return open_ledger(where)
    beside = ledger_beside(where)
    path = beside if beside.is_file() else Path(where)
    if not path.is_file():
        raise SpecError(f"There is no ledger {where!r}.", fix="Name the ledger or its data file.")
    return open_ledger(str(path))


def _subject(body: Mapping[str, Any]) -> str:
    return str(body.get("request") or body.get("account") or body.get("text") or "")
