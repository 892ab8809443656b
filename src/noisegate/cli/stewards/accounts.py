"""Commands on the store of a service: people, tokens, and the log of who asked what."""

import os
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisegate.cli.options import Csv, Json, account_app, app, argument, option, token_app
from noisegate.cli.printing import print_table, say, say_csv, say_json, tell
from noisegate.errors import SpecError
from noisegate.inert import json_text, line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime, timedelta

    from noisegate.server.access import Access
    from noisegate.server.people import People, Token
    from noisegate.server.store import Store

_NOT_OK = 5
_UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_COLUMNS = (
    "seq", "at", "person", "token", "face", "action", "dataset", "sql", "price", "rows",
    "refused", "hash",
)  # fmt: skip

State = Annotated[
    str,
    option(
        "The service's store: a file, postgresql://…, or the policy that it stands beside.",
        envvar="NOISEGATE_STATE",
    ),
]
Name = Annotated[str, argument("The person's name, as in the policy.")]
PasswordStdin = Annotated[bool, option("Read a password from standard input.", "--password-stdin")]
Span = Annotated[str | None, option("How long it holds: 12h, 30d. Default: no end.")]


# people


@account_app.command("add")
def account_add(
    name: Name,
    state: State,
    role: Annotated[str, option("analyst, steward or auditor.")],
    password_stdin: PasswordStdin = False,
    as_json: Json = False,
) -> None:
    """Add a person. A password is only for the pages; everything else takes a token."""
    password = _password() if password_stdin else None
    with _people(state, new=True) as (people, note):
        people.add(name, role, password)  # type: ignore[arg-type]  # any text: it is checked
        note("add person", name=name, role=role)
    words = f"{name}, {role}. Next: noisegate token new {name} --state {state}"
    tell({"name": name, "role": role, "has_password": password_stdin}, words, as_json=as_json)


@account_app.command("list")
def account_list(state: State, as_json: Json = False) -> None:
    """List people."""
    with _people(state) as (people, _):
        found = people.everybody()
    if as_json:
        names = ("name", "role", "has_password", "created", "disabled")
        say_json({"people": [{each: getattr(one, each) for each in names} for one in found]})
        return
    rows = [
        (one.name, one.role, "yes" if one.has_password else "", one.created[:16],
         (one.disabled or "")[:16])
        for one in found
    ]  # fmt: skip
    print_table(None, ("name", "role", "password", "since (UTC)", "disabled"), rows)


@account_app.command("password")
def account_password(
    name: Name,
    state: State,
    password_stdin: PasswordStdin = False,
    as_json: Json = False,
) -> None:
    """Set another password."""
    if not password_stdin:
        raise SpecError(
            "A password is read from standard input alone.", fix="Add --password-stdin."
        )
    with _people(state) as (people, note):
        people.set_password(name, _password())
        note("set password", name=name)
    tell({"name": name, "changed": True}, f"{name} has another password.", as_json=as_json)


@account_app.command("disable")
def account_disable(name: Name, state: State, as_json: Json = False) -> None:
    """From now on no password and no token of this person opens anything."""
    with _people(state) as (people, note):
        people.disable(name)
        note("disable person", name=name)
    tell({"name": name, "disabled": True}, f"{name} is disabled.", as_json=as_json)


# tokens


@token_app.command("new")
def token_new(
    name: Name,
    state: State,
    label: Annotated[str, option("A label: what it is for.")] = "",
    expires: Span = None,
    dataset: Annotated[list[str] | None, option("Only this data set: repeatable.")] = None,
    allow: Annotated[
        list[str] | None, option("Only these optional capabilities; 'none' for none. Repeatable.")
    ] = None,
    epsilon_question: Annotated[str | None, option("The most one question may cost.")] = None,
    epsilon_hour: Annotated[str | None, option("The most in any hour.")] = None,
    purpose: Annotated[str | None, option("What is asked for: only this purpose.")] = None,
    as_json: Json = False,
) -> None:
    """Print a new token of a person, limited as said. It is shown once and stored nowhere."""
    lasts = None if expires is None else _span(expires)
    capabilities = [] if allow == ["none"] else allow
    with _people(state) as (people, note):
        text = people.new_token(
            name, label=label, expires=lasts, datasets=dataset, allow=capabilities,
            epsilon_question=epsilon_question, epsilon_hour=epsilon_hour, purpose=purpose,
        )  # fmt: skip
        made = next(each for each in people.tokens(name) if each.id == text.split("_")[1])
        note("new token", name=name, id=made.id, label=label)
    if as_json:
        say_json({"token": text, **_limits(made)})
        return
    say(text)
    say(f"Shown once. Its id is {made.id}: noisegate token revoke {made.id} ends it.", err=True)


@token_app.command("list")
def token_list(
    state: State,
    name: Annotated[str | None, argument("Only of this person.")] = None,
    as_json: Json = False,
) -> None:
    """List tokens: whose, for what, how limited. None of them can be read again."""
    with _people(state) as (people, _):
        found = people.tokens(name)
    if as_json:
        say_json({"tokens": [_limits(each) for each in found]})
        return
    rows = [
        (each.id, each.person, each.label, "live" if each.is_live else "ended",
         (each.expires or "")[:16], ", ".join(sorted(each.datasets or ())) or "all",
         _most(each.epsilon_question), _most(each.epsilon_hour))
        for each in found
    ]  # fmt: skip
    names = ("id", "person", "label", "state", "until", "data sets", "ε a question", "ε an hour")
    print_table(None, names, rows)


@token_app.command("revoke")
def token_revoke(
    token: Annotated[str, argument("The token's id, or its text.")],
    state: State,
    as_json: Json = False,
) -> None:
    """From now on the token opens nothing."""
    parts = token.split("_")
    name = parts[1] if len(parts) > 2 and parts[0] == "ng" else token
    with _people(state) as (people, note):
        people.revoke(name)
        note("revoke token", id=name)
    tell({"id": name, "revoked": True}, f"{name} is revoked.", as_json=as_json)


# the log


@app.command("audit-log")
def audit_log(
    state: State,
    person: Annotated[str | None, option("Only of this person.")] = None,
    dataset: Annotated[str | None, option("Only this data set.")] = None,
    since: Annotated[
        str | None, option("Only since 2026-01-31, 2026-01-31T12:00, or 7d ago.")
    ] = None,
    verify: Annotated[
        bool, option("Recheck the chain; exit code 5 if it is broken.", "--verify")
    ] = False,
    head: Annotated[
        str | None, option("A head that was noted earlier: a hash, with --verify.")
    ] = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Show who asked what, when, for which price. Each line seals the one before it.

    It holds no answer. A tail that was cut off shows only against a hash noted elsewhere.
    """
    from noisegate.server.access import AuditLog  # noqa: PLC0415 - quick help

    if head is not None and not verify:
        raise SpecError("A noted hash is used with --verify.", fix="Add --verify.")
    begin = None if since is None else _time(since).isoformat(timespec="milliseconds")
    with _store(state) as store:
        log = AuditLog(store)
        if verify:
            _verify(log.lines(), log.broken(), head, as_json=as_json)
            return
        found = log.lines(person=person, dataset=dataset)
    lines = [_shown(each) for each in reversed(found) if begin is None or each.at >= begin]
    if as_json:
        say_json({"lines": lines})
    elif as_csv:
        from noisegate.sheets import csv_text  # noqa: PLC0415

        say_csv(csv_text(_COLUMNS, [tuple(each[name] for name in _COLUMNS) for each in lines]))
    else:
        rows = [
            [str(each["seq"]), each["at"][:19].replace("T", " "), each["person"], _told(each),
             str(each["price"] or "")]
            for each in lines
        ]  # fmt: skip
        print_table(None, ("no", "when (UTC)", "who", "what", "ε"), rows)


def _verify(lines: "list[Access]", broken: int | None, head: str | None, *, as_json: bool) -> None:
    problems = [] if broken is None else [f"Line {broken} does not follow the one before it."]
    if head is not None and all(each.hash != head for each in lines):
        problems.append("The noted hash is not in the log: its tail was cut off, or rewritten.")
    last = lines[0].hash if lines else ""
    if as_json:
        say_json({"ok": not problems, "lines": len(lines), "head": last, "problems": problems})
    else:
        for problem in problems:
            say(problem)
        say(f"{'NOT OK' if problems else 'ok'}: {len(lines)} lines, head {last or 'none'}")
    if problems:
        raise typer.Exit(_NOT_OK)


def _shown(line: "Access") -> dict[str, Any]:
    """A line with what questions have: SQL, price, size."""
    record = line.to_dict()
    detail = record["detail"]
    order = detail.get("order") or {}
    return {
        **record,
        "sql": order.get("sql"),
        "price": detail.get("price"),
        "rows": detail.get("rows"),
        "refused": detail.get("refused"),
    }


def _told(said: Mapping[str, Any]) -> str:
    """What was done, in a few words: about which data, for what, which question, how it ended."""
    order = said["detail"].get("order") or {}
    about = " ".join(filter(None, (said["action"], said["dataset"])))
    why = f" for {order['purpose']}" if order.get("purpose") else ""
    left = {k: v for k, v in order.items() if k not in ("kind", "name", "sql", "purpose")}
    named = " ".join(
        filter(None, (order.get("name") or order.get("kind"), json_text(left) if left else None))
    )
    other = ", ".join(
        f"{key} {value}" for key, value in said["detail"].items() if value is not None
    )
    plain = line(order.get("sql") or named if order else other)
    ends = [f"{said['rows']} rows"] if said["rows"] is not None else []
    ends += [f"refused: {said['refused']}"] if said["refused"] else []
    return f"{about}{why} by {said['face']}{': ' if plain else ''}{plain}" + "".join(
        f"; {each}" for each in ends
    )


# what they share


@contextmanager
def _store(where: str, *, new: bool = False) -> "Iterator[Store]":
    """The store of a service; only what adds something makes one."""
    from noisegate.server.service import STATE_SUFFIX  # noqa: PLC0415 - quick help
    from noisegate.server.store import Store  # noqa: PLC0415

    if "://" not in where:
        if where.lower().endswith(".toml"):
            where = f"{Path(where).resolve()}{STATE_SUFFIX}"
        if not new and not Path(where).is_file():
            raise SpecError(
                f"There is no store {Path(where).name!r}.",
                fix="Name it, or the policy that it stands beside; noisegate account add makes "
                "one.",
                about="state",
            )
    store = Store(where)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _people(where: str, *, new: bool = False) -> "Iterator[tuple[People, Callable[..., None]]]":
    """The people of a service; what an operator does is noted in the log like everything else."""
    from getpass import getuser  # noqa: PLC0415 - quick help

    from noisegate.server.access import AuditLog  # noqa: PLC0415
    from noisegate.server.people import People  # noqa: PLC0415

    try:
        operator = getuser()
    except (KeyError, OSError):
        operator = f"user {os.getuid()}"
    with _store(where, new=new) as store:
        yield People(store), partial(AuditLog(store).add, operator, face="command")


def _password() -> str:
    return sys.stdin.readline().rstrip("\r\n")


def _span(text: str) -> "timedelta":
    from datetime import timedelta  # noqa: PLC0415 - quick help

    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdecimal() or not 0 < int(number) < 10**5:
        raise SpecError(
            f"{text!r} is not a length of time.", fix="For example: 90m, 12h, 30d.", about="span"
        )
    return timedelta(seconds=int(number) * _UNITS[unit])


def _time(text: str) -> "datetime":
    from datetime import UTC, datetime  # noqa: PLC0415 - quick help

    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return datetime.now(UTC) - _span(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _limits(token: "Token") -> dict[str, Any]:
    return {
        "id": token.id,
        "person": token.person,
        "label": token.label,
        "live": token.is_live,
        "created": token.created,
        "expires": token.expires,
        "revoked": token.revoked,
        "datasets": None if token.datasets is None else sorted(token.datasets),
        "allow": None if token.allow is None else sorted(token.allow),
        "epsilon_question": _most(token.epsilon_question) or None,
        "epsilon_hour": _most(token.epsilon_hour) or None,
        "purpose": token.purpose,
    }


def _most(limit: object) -> str:
    return "" if limit is None else str(limit)
