"""Commands on a ledger: show, report, verify, export, restore, note its head, change a budget."""

import json
import os
import sys
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisegate.cli.files import read_text
from noisegate.cli.options import AtDelta, Json, Where, app, argument, key_app, ledger_app, option
from noisegate.cli.printing import print_table, say, say_json, tell
from noisegate.errors import NoisegateError, SpecError

if TYPE_CHECKING:
    from noisegate.desk.checking import Checked
    from noisegate.lab.what_if import Spending
    from noisegate.ledger.account import Balance
    from noisegate.ledger.ledger import Ledger


@ledger_app.command("show")
def ledger_show(
    where: Where,
    entries: Annotated[bool, option("List every entry.", "--entries")] = False,
    as_json: Json = False,
) -> None:
    """Show the accounts: budget, spent, left."""
    with ledger_at(where) as ledger:
        balances = [ledger.balance(name) for name in ledger.accounts()]
        log = ledger.history() if entries else []
        owned = [(account, place) for place, account in ledger.origins().items()]
    rows = [
        (each.account, str(each.budget), str(each.spent), f"{each.remaining:left}", each.accountant,
         str(each.reservations), str(each.unsettled))
        for each in balances
    ]  # fmt: skip
    names = ("account", "budget", "spent", "left", "accountant", "questions", "unsettled")
    about = ("request", "account", "text")
    lines = [
        (str(e.seq), e.at[:19], e.kind, e.hash[:12],
         str(next(filter(None, map(e.body.get, about)), "")))
        for e in log
    ]  # fmt: skip
    if as_json:
        shown: dict[str, Any] = {"accounts": [*map(account_record, balances)]}
        shown["origins"] = [{"account": account, "place": place} for account, place in owned]
        shown |= {"entries": [{"seq": e.seq, "kind": e.kind, "at": e.at, "hash": e.hash,
                               **e.body} for e in log]} if entries else {}  # fmt: skip
        say_json(shown)
        return
    print_table("accounts", names, rows)
    if owned:
        print_table("rows", ("account", "from"), owned)
    if entries:
        print_table("entries", ("no.", "at (UTC)", "kind", "hash", "about"), lines)


def account_record(found: "Balance") -> dict[str, Any]:
    """An account as JSON: numbers are numbers."""
    pairs = {"budget": found.budget, "spent": found.spent, "left": found.remaining}
    shown: dict[str, Any] = {"account": found.account}
    for name, loss in pairs.items():
        shown |= {name: float(loss.epsilon), f"{name}_delta": float(loss.delta)}
    return shown | {
        "accountant": found.accountant, "questions": found.reservations,
        "unsettled": found.unsettled, "below": [*filter(None, (found.parent, *found.also))],
    }  # fmt: skip


@ledger_app.command("verify")
def ledger_verify(
    where: Where,
    head: Annotated[
        list[str] | None,
        option(
            "A head that was noted earlier: a hash, a head, or a file of heads, a card, an "
            "answer or a release. Repeatable."
        ),
    ] = None,
    key: Annotated[
        str | None, option("A key: the public one that must have signed the heads.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Recheck the chain, every price, every sum, every stored answer, and the ledger's file.

    With --head: whether the log still contains a stored head, or was rolled back.
    """
    from noisegate.ledger.verify.anchor import anchors_in  # noqa: PLC0415 - quick help

    if key is not None and not head:
        raise SpecError("A key is only used with a signed head.", fix="Give --head too.")
    anchors = [anchor for each in head or () for anchor in anchors_in(_stated(each), key=key)]
    with ledger_at(where, inspect=True) as ledger:
        found = ledger.verify(anchors=anchors)
    verdict = f"{'ok' if found.ok else 'NOT OK'}: {found.entries} entries, head {found.head}"
    facts = {"ok": found.ok, "entries": found.entries, "head": found.head}
    facts |= {"problems": list(found.problems)}
    tell(facts, "\n".join((*found.problems, verdict)), as_json=as_json)
    if not found.ok:
        raise typer.Exit(5)


@ledger_app.command("head")
def ledger_head(
    where: Where,
    sign: Annotated[
        Path | None, option("Sign with this private key: see noisegate key new.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the head as one line of JSON. Stored elsewhere, it reveals a later rollback."""
    from noisegate.ledger.signing import Signer  # noqa: PLC0415
    from noisegate.ledger.verify.anchor import signed  # noqa: PLC0415 - quick help

    del as_json  # it is one already
    signer = None if sign is None else Signer.load(sign)
    with ledger_at(where) as ledger:
        anchor = ledger.anchor()
    say_json(anchor.to_dict() if signer is None else signed(anchor, signer))


@ledger_app.command("key", hidden=True)
def ledger_key(
    file: Annotated[Path, argument("The private key; made here if there is none.")],
    as_json: Json = False,
) -> None:
    """Print the public key of a private key, which is created if it does not exist.

    The earlier name of `noisegate key new` and `noisegate key show`.
    """
    from noisegate.ledger.signing import make_key, public_key  # noqa: PLC0415 - quick help

    found = public_key(file) if file.exists() else make_key(file)
    tell({"key": found}, found, as_json=as_json)


@ledger_app.command("export")
def ledger_export(where: Where, as_json: Json = False) -> None:
    """Write the log with its answers as JSON lines to standard output; --json: as one object."""
    with ledger_at(where) as ledger:
        written = StringIO() if as_json else sys.stdout
        ledger.export(written)
    if isinstance(written, StringIO):
        say_json({"entries": [*map(json.loads, written.getvalue().splitlines())]})


@ledger_app.command("restore")
def ledger_restore(
    export: Annotated[Path, argument("JSON lines of noisegate ledger export.")],
    where: Annotated[str, argument("The new ledger: a file, or postgresql://….")],
    head: Annotated[
        list[str] | None, option("A head that was noted earlier: JSON or a file. Repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a new ledger from an export, entry by entry the same.

    Whatever was spent since is lost. With --head: refused if the export is older than that head.
    """
    from noisegate.ledger.open import restore_ledger  # noqa: PLC0415 - quick help
    from noisegate.ledger.verify.anchor import anchors_in  # noqa: PLC0415 - quick help

    if not export.is_file():
        raise SpecError(f"There is no file {str(export)!r}.", fix="Name an exported ledger.")
    anchors = [anchor for each in head or () for anchor in anchors_in(_stated(each))]
    new = None if "://" in where else Path(where)
    if new is not None and new.exists():
        raise SpecError(
            f"{where!r} exists already.", fix="Name a new file; nothing is overwritten."
        )
    try:
        with (
            export.open(encoding="utf-8", errors="replace") as lines,
            restore_ledger(lines, where) as ledger,
        ):
            found = ledger.verify(anchors=anchors)
            if found.problems:
                raise SpecError(
                    f"The export is not the whole ledger: {found.problems[0]}",
                    fix="Restore a later export. Nothing was restored.",
                    about="rollback",
                )
    except NoisegateError:
        if new is not None:
            new.unlink(missing_ok=True)
        raise
    facts = {"entries": found.entries, "head": found.head}
    tell(facts, f"{found.entries} entries, head {found.head}", as_json=as_json)


@ledger_app.command("report")
def ledger_report(
    where: Where,
    account: Annotated[
        str | None, option("The account; by default each account of the data set.")
    ] = None,
    at_delta: AtDelta = "1e-6",
    as_json: Json = False,
) -> None:
    """Show what was spent, by every composition theorem side by side.

    For reading only: the budget is enforced by the account's own accountant. The other theorems
    hold for questions that were fixed beforehand.
    """
    from noisegate.exact import fraction  # noqa: PLC0415 - quick help
    from noisegate.lab.what_if import spending  # noqa: PLC0415

    level = fraction(at_delta, name="delta")
    with ledger_at(where) as ledger:
        roots = [each for each in ledger.accounts() if ledger.balance(each).parent is None]
        found = [spending(ledger, each, delta=level) for each in ([account] if account else roots)]
    if as_json:
        say_json({"delta": float(level), "accounts": [_spending(each) for each in found]})
        return
    for each in found:
        own = each.balance.accountant
        rows = [
            (row.method, "-" if row.epsilon is None else f"{float(row.epsilon):.4g}", row.note)
            for row in each.rows
        ]
        charged = (
            f"charged ({own})",
            str(each.charged).removeprefix("ε = "),
            "the measure of the budget",
        )
        title = f"{each.balance.account}: {each.questions} questions"
        title += f", {each.open} of them without an answer" if each.open else ""
        print_table(title, ("method", f"ε at δ = {at_delta}", "note"), [charged, *rows])


def _spending(found: "Spending") -> dict[str, Any]:
    return {
        "account": found.balance.account,
        "accountant": found.balance.accountant,
        "questions": found.questions,
        "open": found.open,
        "charged": {"epsilon": float(found.charged.epsilon), "delta": float(found.charged.delta)},
        "methods": {
            row.method: {
                "epsilon": None if row.epsilon is None else float(row.epsilon),
                "note": row.note,
            }
            for row in found.rows
        },
    }


@ledger_app.command("budget")
def ledger_budget(
    where: Where,
    account: Annotated[
        str, argument("Which account; of a policy: the data set, an analyst, steward.")
    ],
    epsilon: Annotated[str, argument("Its new ε.")],
    reason: Annotated[str, option("The reason; it is recorded in the log.")],
    delta: Annotated[
        str | None, option("δ of the budget: the new one; unchanged by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Change a budget. A steward's act: it is logged, and what is spent stays spent.

    With a policy, the budget of its data set or the share of an analyst changes in the ledger and
    in the policy, in one go. Other accounts, and δ, change in the ledger alone.
    """
    from noisegate.privacy.loss import ApproxDP  # noqa: PLC0415 - quick help

    if where.lower().endswith(".toml") and delta is None:
        account = _amended(Path(where), account, epsilon, reason) or account
    with ledger_at(where) as ledger:
        before = ledger.balance(account).budget
        new = ApproxDP(epsilon, before.delta if delta is None else delta)
        found = ledger.balance(account) if new == before else None
        found = found or ledger.change_budget(account, new, reason=reason)
    words = f"{account}: budget {found.budget}, spent {found.spent}, left {found.remaining:left}"
    tell(account_record(found), words, as_json=as_json)


def _amended(file: Path, account: str, epsilon: str, reason: str) -> str | None:
    """The account whose budget was changed in ledger and policy; None: not one of a policy."""
    from noisegate.root import Hosted, amendment, read_policy  # noqa: PLC0415 - quick help

    policy = read_policy(file)
    analyst = None if account == policy.name else account.removeprefix(f"{policy.name}/")
    listed = {*policy.analysts, *([] if policy.steward is None else ["steward"])}
    if analyst is not None and analyst not in listed:
        return None
    change = amendment(Hosted(policy), epsilon, analyst)
    change.make(reason)
    return change.accounts[0] if change.accounts else f"{policy.name}/{analyst}"


def _stated(head: str) -> str:
    """What was noted, as text: as it was given, or from a file of any form that holds a head."""
    path = Path(head)
    if head.lstrip().startswith("{") or not os.path.isfile(head):  # noqa: PTH113 - any text
        return head
    if path.suffix.lower() == ".parquet":
        import pyarrow.parquet as pq  # noqa: PLC0415 - only when asked for

        facts: dict[bytes, bytes] = pq.read_schema(path).metadata or {}
        return facts.get(b"noisegate.card", b"{}").decode()
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix.lower() == ".md":
        return "\n".join(line.strip("`") for line in text.splitlines() if line.startswith("`{"))
    return text


def ledger_at(where: str, *, inspect: bool = False) -> "Ledger":
    """A ledger, by its own place or the file that it stands beside."""
    from noisegate.ledger.open import inspect_ledger, open_ledger  # noqa: PLC0415
    from noisegate.root import ledger_beside  # noqa: PLC0415

    if "://" in where:
        return open_ledger(where)
    beside = ledger_beside(where)
    path = beside if beside.is_file() else Path(where)
    if not path.is_file():
        raise SpecError(f"There is no ledger {where!r}.", fix="Name a ledger or its data file.")
    return inspect_ledger(str(path)) if inspect else open_ledger(str(path))


# commands on keys and signatures: make a key, show it, verify what somebody hands over


_DOES_NOT_VERIFY = 5


@key_app.command("new")
def key_new(
    file: Annotated[Path, argument("Where the private key is kept; a new file.")],
    as_json: Json = False,
) -> None:
    """Make a private key, readable by its owner only, and print the public one.

    Keep the private key apart from the ledger, and publish the public one.
    """
    from noisegate.ledger.signing import make_key  # noqa: PLC0415 - quick help

    _show(make_key(file), as_json=as_json)


@key_app.command("show")
def key_show(file: Annotated[Path, argument("A private key.")], as_json: Json = False) -> None:
    """Print the public key of a private one; its short fingerprint goes to standard error."""
    from noisegate.ledger.signing import public_key  # noqa: PLC0415 - quick help

    _show(public_key(file), as_json=as_json)


@app.command()
def verify(
    file: Annotated[
        Path, argument("A card, an answer, heads (.json) or a saved release (.parquet).")
    ],
    key: Annotated[str | None, option("A key: the public one that must have signed it.")] = None,
    key_file: Annotated[Path | None, option("Or: a file with it.")] = None,
    ledger: Annotated[
        str | None, option("A ledger: to compare it with, or the file beside it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify the signature of a card, an answer, a ledger head or a saved release, offline.

    Without a key this shows that nothing was changed since somebody signed it, not who that was.
    """
    from noisegate.ledger.signing import fingerprint, read_public  # noqa: PLC0415 - quick help

    if key is not None and key_file is not None:
        raise SpecError("Two keys are given.", fix="Give --key or --key-file.")
    said = key if key_file is None else read_text(key_file)
    wanted = None if said is None else read_public(said)
    if ledger is None:
        found = _checked(file, wanted)
    else:
        with ledger_at(ledger, inspect=True) as opened:
            found = _checked(file, wanted, opened)
    name = None if found.signer is None else fingerprint(found.signer)
    if as_json:
        stated = {"kind": found.kind, "ok": found.ok, "key": found.signer, "fingerprint": name}
        say_json({**stated, "trusted_key": found.trusted, "ledger": found.in_ledger,
                  "problems": list(found.problems)})  # fmt: skip
    else:
        for problem in found.problems:
            say(problem)
        say(f"{'ok' if found.ok else 'NOT OK'}: {found.words(name)}")
    if not found.ok:
        raise typer.Exit(_DOES_NOT_VERIFY)


def _checked(file: Path, key: str | None, ledger: "Ledger | None" = None) -> "Checked":
    """What was found; a signature that does not hold is a finding like others."""
    from noisegate.desk.checking import Checked, check_file  # noqa: PLC0415 - quick help

    try:
        return check_file(file, key=key, ledger=ledger)
    except SpecError as refused:
        return Checked.refused(refused)


def _show(public: str, *, as_json: bool) -> None:
    from noisegate.ledger.signing import fingerprint  # noqa: PLC0415 - quick help

    if as_json:
        say_json({"key": public, "fingerprint": fingerprint(public)})
    else:
        say(public)
        say(f"fingerprint {fingerprint(public)}", err=True)
