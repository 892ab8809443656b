"""The command line: ask, plan, look into the ledger, learn what ε means.

Nothing heavy is imported before a command runs, so that help is quick.
"""

import json
import sys
from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from noisegate.errors import NoisegateError, SpecError

if TYPE_CHECKING:
    from noisegate.ledger.store import Ledger
    from noisegate.query.answer import Answer
    from noisegate.query.gate import Gate

_ANY_BUDGET = "1000000"

app = typer.Typer(
    name="noisegate",
    help="A privacy gate in front of sensitive tables: rows go in, only noisy answers come out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
ledger_app = typer.Typer(help="Look into a ledger, check it, copy it.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")

DataFile = Annotated[Path, typer.Argument(help="A CSV or Parquet file.")]
Sql = Annotated[str, typer.Argument(help="Such as 'SELECT COUNT(*) AS n FROM people'.")]
Epsilon = Annotated[str | None, typer.Option(help="What to pay for this question.")]
Within = Annotated[str | None, typer.Option(help="Or: how far the answer may be off.")]
Confidence = Annotated[str, typer.Option(help="How surely the ± holds.")]
Budget = Annotated[str | None, typer.Option(help="ε of the whole data set, at the first question.")]
Delta = Annotated[str, typer.Option(help="δ of the whole data set.")]
Accountant = Annotated[str | None, typer.Option(help="pure, zcdp or renyi-<order>.")]
Analyst = Annotated[str | None, typer.Option(help="Who asks: an account below the data set's.")]
Share = Annotated[str | None, typer.Option(help="With --analyst: the ε this analyst may spend.")]
Unit = Annotated[str | None, typer.Option(help="The column that names the person behind a row.")]
RowsPerUnit = Annotated[int | None, typer.Option(help="With --unit: rows that count per person.")]
Keys = Annotated[
    list[str] | None, typer.Option(help="Public keys of a column: ward=north,south. Repeatable.")
]
LedgerPath = Annotated[str | None, typer.Option("--ledger", help="Where the budget is kept.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Where = Annotated[str, typer.Argument(help="The ledger, or the data file that it stands beside.")]


@app.command()
def ask(
    file: DataFile,
    sql: Sql,
    epsilon: Epsilon = None,
    within: Within = None,
    confidence: Confidence = "0.95",
    budget: Budget = None,
    delta: Delta = "0",
    accountant: Accountant = None,
    analyst: Analyst = None,
    share: Share = None,
    unit: Unit = None,
    rows_per_unit: RowsPerUnit = None,
    keys: Keys = None,
    ledger: LedgerPath = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Pay for a new draw.")] = False,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated rows.")] = False,
) -> None:
    """Ask a question. The same question again is answered from the ledger, for free."""
    gate = _gate(file, budget, delta, accountant, analyst, share, unit, rows_per_unit, keys, ledger)
    answer = gate.sql(sql, epsilon=epsilon, within=within, confidence=confidence, fresh=fresh)
    if as_json:
        typer.echo(json.dumps(answer.to_dict(confidence), ensure_ascii=False))
    elif as_csv:
        _print_csv(answer, confidence)
    else:
        _print_answer(answer, confidence)


@app.command()
def plan(
    file: DataFile,
    sql: Sql,
    epsilon: Epsilon = None,
    within: Within = None,
    confidence: Confidence = "0.95",
    budget: Budget = None,
    delta: Delta = "0",
    accountant: Accountant = None,
    analyst: Analyst = None,
    share: Share = None,
    unit: Unit = None,
    rows_per_unit: RowsPerUnit = None,
    keys: Keys = None,
    ledger: LedgerPath = None,
    as_json: Json = False,
) -> None:
    """Show price and error of a question without paying."""
    from noisegate.connect import ledger_beside  # noqa: PLC0415

    if ledger is None and not ledger_beside(file).is_file():
        ledger, budget = ":memory:", budget or _ANY_BUDGET  # a plan leaves nothing behind
    gate = _gate(file, budget, delta, accountant, analyst, share, unit, rows_per_unit, keys, ledger)
    found = gate.plan(sql, epsilon=epsilon, within=within, confidence=confidence)
    if as_json:
        typer.echo(json.dumps(found.to_dict(confidence), ensure_ascii=False))
    else:
        _print_table(None, ("", ""), found.facts(confidence))


@app.command("explain-epsilon")
def explain_epsilon(
    epsilon: Annotated[str, typer.Argument(help="Such as 0.5.")],
    prior: Annotated[str, typer.Option(help="What was believed before.")] = "0.5",
    as_json: Json = False,
) -> None:
    """Say what an ε means, in a table and in plain sentences."""
    from noisegate.privacy.meaning import meaning  # noqa: PLC0415

    found = meaning(epsilon, prior=prior)
    facts = {
        "odds rise at most": f"{_up(found.odds_factor, 4)} times",
        f"belief {float(found.prior):.1%} that someone is present, at most": _percent(
            found.posterior
        ),
        "the same, about what a present person's rows say": _percent(found.posterior_change_one),
        "right guesses of a fair “in or out?”, at most": _percent(found.guess_accuracy),
        "conclusions with and without the person differ by": _percent(found.total_variation),
        **{
            f"{g.size} persons together: belief at most": _percent(g.posterior)
            for g in found.groups
        },
    }
    if as_json:
        typer.echo(json.dumps({"epsilon": str(found.loss.epsilon), **facts}, ensure_ascii=False))
        return
    _print_table(f"What ε = {epsilon} means", ("", ""), facts.items())
    for sentence in found.sentences:
        typer.echo(sentence)


@app.command("what-if")
def what_if(
    budget: Annotated[str, typer.Option(help="ε of the whole data set.")],
    epsilon: Epsilon = None,
    within: Within = None,
    confidence: Confidence = "0.95",
    delta: Delta = "0",
    as_json: Json = False,
) -> None:
    """Say how sharp counts are at a price (or what an error costs), and how many a budget buys."""
    from noisegate.lab.what_if import what_if as facts_of  # noqa: PLC0415

    facts = facts_of(
        epsilon=epsilon, within=within, confidence=confidence, budget=budget, delta=delta
    )
    if as_json:
        typer.echo(json.dumps(dict(facts), ensure_ascii=False))
    else:
        _print_table(f"What a budget of ε = {budget} buys", ("", ""), facts)


@app.command()
def demo() -> None:
    """Run the main job on made-up rows: price, answer, ledger, refusal."""
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from noisegate.lab.demo import run  # noqa: PLC0415

    console = Console()
    run(
        title=lambda text: console.print(Text(f"\n{text}", style="bold")),
        say=lambda text: console.print(Text(text)),
        show=lambda answer: _print_answer(answer, "0.95"),
    )


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
        typer.echo(json.dumps(shown, ensure_ascii=False))
        return
    _print_table("accounts", names, rows)
    if entries:
        _print_table("entries", ("no.", "at (UTC)", "kind", "hash", "about"), lines)


@ledger_app.command("verify")
def ledger_verify(
    where: Where,
    head: Annotated[str | None, typer.Option(help="The head hash noted earlier.")] = None,
) -> None:
    """Recheck the chain, every price, every sum and every stored answer."""
    with _ledger(where) as ledger:
        found = ledger.verify(pinned_head=head)
    for problem in found.problems:
        typer.echo(problem)
    typer.echo(f"{'ok' if found.ok else 'NOT OK'}: {found.entries} entries, head {found.head}")
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
    delta: Annotated[str, typer.Option(help="Its new δ.")] = "0",
) -> None:
    """Change an account's budget. A steward's act: it is logged, and what is spent stays spent."""
    from noisegate.privacy.loss import ApproxDP  # noqa: PLC0415

    with _ledger(where) as ledger:
        found = ledger.change_budget(account, ApproxDP(epsilon, delta), reason=reason)
    typer.echo(
        f"{account}: budget {found.budget}, spent {found.spent}, left {found.remaining:left}"
    )


def main() -> None:
    """Run a command; refusals become one clear message and their own exit code."""
    try:
        app()
    except NoisegateError as refusal:
        _fail(refusal)


def _gate(
    file: Path,
    budget: str | None,
    delta: str,
    accountant: str | None,
    analyst: str | None,
    share: str | None,
    unit: str | None,
    rows_per_unit: int | None,
    keys: list[str] | None,
    ledger: str | None,
) -> "Gate":
    from noisegate.connect import open as open_gate  # noqa: PLC0415

    return open_gate(
        file,
        epsilon=budget,
        delta=delta,
        accountant=accountant,
        analyst=analyst,
        share=share,
        unit=unit,
        rows_per_unit=rows_per_unit,
        columns=_columns(keys or []),
        ledger=ledger,
    )


def _columns(keys: list[str]) -> dict[str, dict[str, Any]]:
    columns: dict[str, dict[str, Any]] = {}
    for item in keys:
        name, sign, values = item.partition("=")
        if not sign or not name or not values:
            raise SpecError(f"--keys {item} is not understood.", fix="Use --keys ward=north,south.")
        texts = values.split(",")
        whole = all(text.removeprefix("-").isdecimal() for text in texts)
        columns[name] = {"in": [int(text) for text in texts] if whole else texts}
    return columns


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


def _print_answer(answer: "Answer", confidence: str) -> None:
    _print_table(None, answer.columns, answer.cells(confidence))
    typer.echo(answer.footer(confidence))
    typer.echo(str(answer.guarantee))


def _print_csv(answer: "Answer", confidence: str) -> None:
    import csv  # noqa: PLC0415

    rows = csv.writer(sys.stdout)
    rows.writerow([*answer.columns, "margin"])
    margin = answer.plan.margin(confidence)
    rows.writerows([*row, margin] for row in answer.rows)


def _print_table(title: str | None, names: Any, rows: Any) -> None:  # noqa: ANN401 - rich's types
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title=title, title_justify="left", show_header=any(names))
    for name in names:
        table.add_column(Text(name), overflow="fold")  # nothing is cut off
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    Console().print(table)


def _subject(body: Mapping[str, Any]) -> str:
    return str(body.get("request") or body.get("account") or body.get("text") or "")


def _percent(value: Fraction) -> str:
    return f"{_up(value * 100, 2)} %"


def _up(value: Fraction, digits: int) -> str:
    """Rounded up: a bound is never shown smaller than it is."""
    return f"{float(Fraction(ceil(value * 10**digits), 10**digits)):.{digits}f}"


def _fail(refusal: NoisegateError) -> NoReturn:
    if "--json" in sys.argv:
        error = {"code": refusal.code, "message": refusal.problem, "fix": refusal.fix}
        typer.echo(json.dumps({"error": error}, ensure_ascii=False))
    typer.echo(f"{refusal.code}: {refusal.problem}\n  {refusal.fix}", err=True)
    sys.exit(refusal.exit_code)
