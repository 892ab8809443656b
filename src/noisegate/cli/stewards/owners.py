"""Commands of owners who add up their numbers without a trusted curator, over a network."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from noisegate.cli.files import read_text, require_writable, saved
from noisegate.cli.options import Confidence, Json, Planned, argument, option, owner_app, writes
from noisegate.cli.printing import print_table, say, say_json
from noisegate.errors import SpecError
from noisegate.files import write
from noisegate.inert import json_text

if TYPE_CHECKING:
    from noisegate.federated.agreements import Pact
    from noisegate.federated.release import OwnersRelease

Agreed = Annotated[Path, argument("The agreement, the same file for everybody.")]
_SHOWN = 60


@owner_app.command("add")
def owner_add(
    agreement: Agreed,
    name: Annotated[str, argument("The owner.")],
    key: Annotated[str, argument("Its public key: noisegate key new FILE prints it.")],
    session: Annotated[
        str | None, option("Begin a new agreement: the name of the session.")
    ] = None,
    epsilon: Annotated[str | None, option("The ε to pay: of one unit, in a new agreement.")] = None,
    cells: Annotated[
        int | None, option("How many numbers: each owner has, in a new agreement.")
    ] = None,
    per_unit: Annotated[int, option("New: how far a unit moves all of them.")] = 1,
    drop_outs: Annotated[int, option("Number of owners that may drop out: on the way.")] = 0,
    colluding: Annotated[int, option("Number of owners that may collude.")] = 0,
    coefficients: Annotated[
        int | None, option("Coefficients: add up so many of Fourier's instead.")
    ] = None,
    grain: Annotated[str, option("Numbers are whole multiples of it.")] = "1",
    as_json: Json = False,
) -> None:
    """Add an owner and its key to an agreement, or begin one with --session."""
    from noisegate.exact import fraction  # noqa: PLC0415 - quick help
    from noisegate.federated.agreements import Pact, read_pact  # noqa: PLC0415

    if session is None:
        pact = read_pact(agreement)
    elif epsilon is None or cells is None or agreement.exists():
        raise SpecError(
            "A new agreement is a new file, with an ε and a number of cells.",
            fix="For example: --session flu --epsilon 1 --cells 52.",
            about="agreement",
        )
    else:
        pact = Pact(
            session=session, epsilon=fraction(epsilon, name="epsilon"), cells=cells,
            per_unit=per_unit, drop_outs=drop_outs, colluding=colluding, coefficients=coefficients,
            grain=fraction(grain, name="grain"),
        )  # fmt: skip
    pact = pact.with_owner(name, key)
    pact.write(agreement)
    facts = {"owners": [each for each, _ in pact.owners], "agreement": pact.digest}
    if as_json:
        say_json(facts)
    else:
        say(f"{len(pact.owners)} owners: {', '.join(facts['owners'])}")


@owner_app.command("serve")
def owner_serve(
    agreement: Agreed,
    host: Annotated[str, option("The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, option("The port to listen at: 0 is any free one.")] = 0,
    wait: Annotated[float, option("Seconds to wait for owners.")] = 300.0,
    patience: Annotated[float, option("Seconds for one step of an owner.")] = 60.0,
    save: Annotated[
        list[Path] | None, writes(".json .csv .parquet, a plot .png .svg; its card: .md .card.json")
    ] = None,
    plan: Planned = False,
    confidence: Confidence = "0.95",
    as_json: Json = False,
) -> None:
    """Add up what owners send: wait for them, run the session, print the noisy sum."""
    import socket  # noqa: PLC0415 - quick help

    from noisegate.federated.agreements import read_pact  # noqa: PLC0415
    from noisegate.federated.network import collect  # noqa: PLC0415
    from noisegate.federated.release import OwnersRelease  # noqa: PLC0415

    pact = read_pact(agreement)
    if plan:
        _print_plan(pact, confidence, as_json=as_json)
        return
    _ = pact.agreement  # whatever cannot be kept is refused now
    require_writable(save or [], OwnersRelease.endings)
    with socket.create_server((host, port)) as listener:
        say(f"listening on {host}:{listener.getsockname()[1]}", err=True)
        found = collect(pact, listener, seconds=wait, patience=patience)
    with saved(save, lambda path: _save(path, pact, found, confidence)):
        if as_json:
            say_json(_facts(pact, found, confidence))
        else:
            _print(found, confidence)


@owner_app.command("join")
def owner_join(
    agreement: Agreed,
    name: Annotated[str, argument("Who you are in the agreement.")],
    numbers: Annotated[Path, option("Your numbers, one a line; or a CSV.")],
    to: Annotated[str, option("Where it goes: the aggregator, host:port.")],
    key: Annotated[Path, option("A key: your private one.")],
    ledger: Annotated[str, option("A ledger: your own, charged first.")],
    budget: Annotated[str, option("ε of the whole data set: yours, for all sessions.")],
    plan: Planned = False,
    as_json: Json = False,
) -> None:
    """Take part with your own numbers: nobody sees them, and your ledger is charged first."""
    from noisegate.federated.agreements import read_pact  # noqa: PLC0415 - quick help
    from noisegate.federated.network import join  # noqa: PLC0415
    from noisegate.ledger.open import open_ledger  # noqa: PLC0415
    from noisegate.ledger.signing import Signer  # noqa: PLC0415
    from noisegate.privacy.loss import ApproxDP  # noqa: PLC0415

    pact = read_pact(agreement)
    own = _numbers(numbers)
    pact.series(own)  # whatever is wrong with them is refused now
    if plan:
        _print_plan(pact, "0.95", as_json=as_json)
        return
    host, _, port = to.rpartition(":")
    if not host or not port.isdigit():
        raise SpecError("The aggregator's address is not host:port.", fix="--to 127.0.0.1:7000")
    held = open_ledger(ledger)
    held.open_account(
        "owner", parent=None, accountant="pure", budget=ApproxDP(budget), unit="one unit"
    )
    join(
        pact, name, own, signer=Signer.load(key), ledger=held, account="owner",
        address=(host, int(port)),
    )  # fmt: skip
    left = held.balance("owner").remaining
    if as_json:
        say_json({"paid": float(pact.epsilon), "left": float(left.epsilon)})
        return
    say(f"paid ε = {float(pact.epsilon):g}, left {left}")
    say(pact.agreement.words())


def _numbers(file: Path) -> list[float]:
    """One number a line; of comma-separated lines the last, below a header or not."""
    lines = [line.strip() for line in read_text(file).splitlines() if line.strip()]
    found: list[float] = []
    for place, line in enumerate(lines):
        try:
            found.append(float(line.rpartition(",")[2]))
        except ValueError:
            if place:
                raise SpecError(
                    f"Line {place + 1} of {file.name!r} does not end in a number.",
                    fix="Write one number a line.",
                    about="numbers",
                ) from None
    return found


def _print_plan(pact: "Pact", confidence: str, *, as_json: bool) -> None:
    """What will come out, before anybody sends anything."""
    import numpy as np  # noqa: PLC0415

    from noisegate.federated.release import OwnersRelease  # noqa: PLC0415

    agreed = pact.agreement
    zeros = np.zeros(agreed.size, np.int64)
    made = OwnersRelease(
        agreement=agreed, numbers=zeros, stayed=tuple(range(agreed.owners)), grain=pact.grain
    )
    off = float(made.margins(confidence).max())
    if as_json:
        said = {"epsilon": float(pact.epsilon), "margin": off, "promise": made.words}
        say_json(said | {"numbers": agreed.size, "owners": agreed.owners})
        return
    more = "" if pact.coefficients is None else ", and what the coefficients leave out"
    rows = [
        ("owners", f"{agreed.owners}, of which {agreed.threshold} must stay"),
        ("numbers", f"{agreed.size:,}"),
        ("error", f"± {off:,.4g} each, of noise{more}"),
        ("price", f"ε = {float(pact.epsilon):g} for each owner's own ledger"),
        ("promise", made.words),
    ]
    print_table(None, ("plan", ""), rows)


def _facts(pact: "Pact", found: "OwnersRelease", confidence: str) -> dict[str, Any]:
    return {
        "session": pact.session, "agreement": pact.digest,
        "stayed": [pact.owners[number][0] for number in found.stayed],
        "sum": found.series().tolist(), "margins": found.margins(confidence).tolist(),
        "confidence": float(confidence), "epsilon": float(pact.epsilon), "promise": found.words,
    }  # fmt: skip


def _print(found: "OwnersRelease", confidence: str) -> None:
    shown, off = found.series(), found.margins(confidence)
    rows = [
        (str(place + 1), f"{shown[place]:,.6g} ± {off[place]:,.4g}")
        for place in range(min(shown.size, _SHOWN))
    ]
    print_table(None, ("cell", "sum"), rows)
    say(str(found))


def _save(path: Path, pact: "Pact", found: "OwnersRelease", confidence: str) -> None:
    ending = path.suffix.lower()
    if ending == ".json" and not path.name.lower().endswith(".card.json"):
        write(path, json_text(_facts(pact, found, confidence), indent=1) + "\n")
    elif ending == ".csv":
        from noisegate.sheets import csv_text  # noqa: PLC0415

        pairs = zip(found.series().tolist(), found.margins(confidence).tolist(), strict=True)
        rows = [(place + 1, *pair) for place, pair in enumerate(pairs)]
        write(path, csv_text(("cell", "sum", "margin"), rows))
    else:
        found.save(path, confidence)
