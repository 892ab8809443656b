"""Commands on keys and signatures: make a key, show it, verify what somebody hands over."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noisegate.cli.app import Json, app, key_app
from noisegate.cli.files import read_text
from noisegate.cli.printing import say, say_json
from noisegate.cli.stewards.ledgers import ledger_at
from noisegate.errors import SpecError

if TYPE_CHECKING:
    from noisegate.desk.checking import Checked
    from noisegate.ledger.ledger import Ledger

_DOES_NOT_VERIFY = 5


@key_app.command("new")
def key_new(
    file: Annotated[Path, typer.Argument(help="Where the private key is kept; a new file.")],
    as_json: Json = False,
) -> None:
    """Make a private key, readable by its owner only, and print the public one.

    Keep the private key apart from the ledger, and publish the public one.
    """
    from noisegate.ledger.signing import make_key  # noqa: PLC0415 - quick help

    _show(make_key(file), as_json=as_json)


@key_app.command("show")
def key_show(
    file: Annotated[Path, typer.Argument(help="A private key.")], as_json: Json = False
) -> None:
    """Print the public key of a private one; its short fingerprint goes to standard error."""
    from noisegate.ledger.signing import public_key  # noqa: PLC0415 - quick help

    _show(public_key(file), as_json=as_json)


@app.command()
def verify(
    file: Annotated[
        Path, typer.Argument(help="A card, an answer, heads (.json) or a saved release (.parquet).")
    ],
    key: Annotated[
        str | None, typer.Option(help="A key: the public one that must have signed it.")
    ] = None,
    key_file: Annotated[Path | None, typer.Option(help="Or: a file with it.")] = None,
    ledger: Annotated[
        str | None, typer.Option(help="A ledger: to compare it with, or the file beside it.")
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
