"""The command that serves policies, and those for the people who may ask."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from noisegate.cli.app import app
from noisegate.cli.printing import print_table, say

if TYPE_CHECKING:
    from noisegate.server.people import People

people_app = typer.Typer(
    help="The people of a service: roles, passwords and tokens.", no_args_is_help=True
)
app.add_typer(people_app, name="people")
_DEMO = (("steward", "steward"), ("ana", "analyst"), ("auditor", "auditor"))

State = Annotated[
    str, typer.Option(help="Where the service keeps its people: a file, or a Postgres address.")
]
Policies = Annotated[list[Path] | None, typer.Argument(help="Policies, TOML files.")]
Name = Annotated[str, typer.Argument(help="The person's name; of analysts, as in the policy.")]


@app.command()
def serve(
    policies: Policies = None,
    host: Annotated[str | None, typer.Option(help="The address to listen at. [127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="The port of HTTP. [8080]")] = None,
    pg_port: Annotated[int | None, typer.Option(help="The port for Postgres clients.")] = None,
    state: Annotated[
        str | None, typer.Option(help="Where people, runs and the access log are kept.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="A certificate, a PEM file.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key.")] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy speaks TLS with the callers.")
    ] = False,
    quantum: Annotated[
        float | None, typer.Option(help="Answers leave at multiples of so many seconds. [0.05]")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Questions worked on at once. [2]")] = None,
    approve_above: Annotated[
        str | None, typer.Option(help="The ε above which a steward has to approve.")
    ] = None,
    settings: Annotated[Path | None, typer.Option(help="These choices as a TOML file.")] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve a made-up clinic, and print tokens for it.")
    ] = False,
) -> None:
    """Serve the tables of policies to analysts, over HTTP and whatever else is configured."""
    from noisegate.errors import SpecError  # noqa: PLC0415 - quick help
    from noisegate.server.serve import Serving, serve  # noqa: PLC0415
    from noisegate.server.service import Service  # noqa: PLC0415

    with TemporaryDirectory(prefix="noisegate-demo-") as folder:
        if demo:
            from noisegate.lab.demo import write_clinic  # noqa: PLC0415

            policies = [write_clinic(Path(folder), epsilon=20)]
        serving = Serving.chosen(
            settings, policies=policies, host=host, port=port, pg_port=pg_port, state=state,
            tls_cert=tls_cert, tls_key=tls_key, behind_proxy=behind_proxy or None, quantum=quantum,
            workers=workers, approve_above=approve_above,
        )  # fmt: skip
        if not serving.policies:
            raise SpecError("Nothing is to be served.", fix="Name a policy, or use --demo.")
        service = Service(
            serving.policies, state=serving.state, settings=serving.settings, issuer=serving.issuer
        )
        for name, role in _DEMO if demo else ():
            service.people.add(name, role)  # type: ignore[arg-type]  # a role
            say(f"token {name} {service.people.new_token(name, label='demo')}")
        names = ", ".join(service.names)
        serve(service, serving, started=lambda url: say(f"serving {names} at {url}"))


@people_app.command()
def add(
    name: Name,
    role: Annotated[str, typer.Argument(help="steward, analyst or auditor.")],
    state: State,
    *,
    password: Annotated[
        bool, typer.Option("--password", help="Ask for a password, for the pages.")
    ] = False,
) -> None:
    """Add a person."""
    said = typer.prompt("Password", hide_input=True, confirmation_prompt=True) if password else None
    _people(state).add(name, role, said)  # type: ignore[arg-type]  # checked there
    say(f"added {role} {name}")


@people_app.command()
def token(
    name: Name,
    state: State,
    label: Annotated[str, typer.Option(help="What it is for.")] = "",
    days: Annotated[int | None, typer.Option(help="How long it is valid.")] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(help="A data set that it opens. Repeatable.")
    ] = None,
    epsilon_question: Annotated[
        str | None, typer.Option(help="The most ε that one question may cost.")
    ] = None,
    epsilon_hour: Annotated[str | None, typer.Option(help="The same of an hour.")] = None,
) -> None:
    """Make a token for a person. It is shown once."""
    from datetime import timedelta  # noqa: PLC0415 - quick help

    made = _people(state).new_token(
        name, label=label, expires=None if days is None else timedelta(days=days),
        datasets=dataset or None, epsilon_question=epsilon_question, epsilon_hour=epsilon_hour,
    )  # fmt: skip
    say(f"token {name} {made}")


@people_app.command(name="list")
def listed(state: State) -> None:
    """List people and their tokens, without secrets."""
    people = _people(state)
    rows = [
        (each.name, each.role, each.created, each.disabled or "") for each in people.everybody()
    ]
    print_table("People", ("name", "role", "since", "disabled"), rows)
    tokens = [
        (each.id, each.person, each.label, each.expires or "", "yes" if each.is_live else "no")
        for each in people.tokens()
    ]
    print_table("Tokens", ("id", "person", "label", "expires", "valid"), tokens)


@people_app.command()
def disable(name: Name, state: State) -> None:
    """Disable a person: nothing of theirs opens anything any more."""
    _people(state).disable(name)
    say(f"disabled {name}")


@people_app.command()
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="Of the token, as listed.")],
    state: State,
) -> None:
    """Revoke a token."""
    _people(state).revoke(token_id)
    say(f"revoked {token_id}")


def _people(state: str) -> "People":
    from noisegate.server.people import People  # noqa: PLC0415 - quick help
    from noisegate.server.store import Store  # noqa: PLC0415

    return People(Store(state))
