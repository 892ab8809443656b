"""The command that serves policies. People and their tokens are in `accounts.py`."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from noisegate.cli.options import PolicyFile, app, argument, option
from noisegate.cli.printing import say
from noisegate.errors import PolicyError, SpecError

if TYPE_CHECKING:
    from noisegate.server.people import Caller

_DEMO = (("steward", "steward"), ("ana", "analyst"), ("auditor", "auditor"))

Policies = Annotated[list[Path] | None, argument("Policies, TOML files.")]


@app.command()
def serve(
    policies: Policies = None,
    host: Annotated[str | None, option("The address to listen at: [127.0.0.1]")] = None,
    port: Annotated[int | None, option("The port to listen at: of HTTP. [8080]")] = None,
    pg_port: Annotated[int | None, option("The port for Postgres clients.")] = None,
    state: Annotated[
        str | None, option("The service's store: people, runs and the access log.")
    ] = None,
    tls_cert: Annotated[Path | None, option("A certificate, a PEM file.")] = None,
    tls_key: Annotated[Path | None, option("Its key.")] = None,
    behind_proxy: Annotated[
        bool, option("A proxy speaks TLS with the callers.", "--behind-proxy")
    ] = False,
    quantum: Annotated[
        float | None, option("Answers leave at multiples of so many seconds. [0.05]")
    ] = None,
    workers: Annotated[int | None, option("How many run at once: questions. [16]")] = None,
    approve_above: Annotated[
        str | None, option("The ε above which a steward has to approve.")
    ] = None,
    signing_key: Annotated[
        Path | None, option("Sign answers, cards, releases and heads with this key.")
    ] = None,
    settings: Annotated[Path | None, option("These choices as a TOML file.")] = None,
    demo: Annotated[
        bool, option("Serve a made-up clinic, and print tokens for it.", "--demo")
    ] = False,
) -> None:
    """Serve the tables of policies to analysts, over HTTP and whatever else is configured."""
    from noisegate.server.serve import Serving, serve  # noqa: PLC0415
    from noisegate.server.service import Service  # noqa: PLC0415

    with TemporaryDirectory(prefix="noisegate-demo-") as folder:
        if demo:
            from noisegate.lab.demo import write_clinic  # noqa: PLC0415

            policies = [write_clinic(Path(folder), epsilon=20)]
        serving = Serving.chosen(
            settings, policies=policies, host=host, port=port, pg_port=pg_port, state=state,
            tls_cert=tls_cert, tls_key=tls_key, behind_proxy=behind_proxy or None, quantum=quantum,
            workers=workers, approve_above=approve_above, signing_key=signing_key,
        )  # fmt: skip
        if not serving.policies:
            raise SpecError("Nothing is to be served.", fix="Name a policy, or use --demo.")
        service = Service(
            serving.policies, state=serving.state, settings=serving.settings,
            issuer=serving.issuer, signer=serving.signer,
        )  # fmt: skip
        for name, role in _DEMO if demo else ():
            service.people.add(name, role)  # type: ignore[arg-type]  # a role
            say(f"token {name} {service.people.new_token(name, label='demo')}")

        def started(url: str) -> None:
            if serving.pg_port is not None:
                say(f"for Postgres clients at {serving.host}:{serving.pg_port}")
            say(f"serving {', '.join(service.names)} at {url}")

        serve(service, serving, started=started)


# the command that lets an agent ask: the tools of a policy over standard input and output


_QUESTION, _HOUR = 10, 4  # parts of the share, where nothing is said


@app.command()
def mcp(
    file: PolicyFile,
    analyst: Annotated[
        str, option("Who is asking: the agent, a line under [analysts] of the policy.")
    ],
    epsilon_question: Annotated[
        str | None, option("The most one question may cost: by default a tenth of the share.")
    ] = None,
    epsilon_hour: Annotated[
        str | None, option("The most in any hour: by default a quarter of the share.")
    ] = None,
    state: Annotated[
        str | None, option("The service's store: by default beside the policy.")
    ] = None,
) -> None:
    """Let an agent ask questions, by the Model Context Protocol over standard input and output.

    This is the steward's process: it reads the rows. The agent gets tools, no file and no SQL
    engine. Its share is the policy's; the caps hold for any hour, whatever is started anew.
    """
    from noisegate.server.agents import serve_pipes  # noqa: PLC0415 - quick help
    from noisegate.server.serve import Serving  # noqa: PLC0415
    from noisegate.server.service import Service  # noqa: PLC0415

    caller = _caller(file, analyst, epsilon_question, epsilon_hour)
    chosen = Serving.chosen(policies=[file], state=state)  # or in the environment
    service = Service(chosen.policies, state=chosen.state, settings=chosen.settings)
    try:
        serve_pipes(service, caller)
    finally:
        service.close()


def _caller(file: Path, analyst: str, question: str | None, hour: str | None) -> "Caller":
    """The agent. One without a share of its own could spend everybody's budget."""
    from noisegate.exact import positive  # noqa: PLC0415
    from noisegate.root import read_policy  # noqa: PLC0415 - quick help
    from noisegate.server.people import Caller  # noqa: PLC0415

    share = read_policy(file).analysts.get(analyst)
    if share is None:
        raise PolicyError(
            f"The policy gives {analyst!r} no share of its own.",
            fix="Add a line under [analysts], such as bot = 0.5.",
            about="agent",
        )
    each = positive(share.epsilon / _QUESTION if question is None else question, name="ε")
    most = positive(share.epsilon / _HOUR if hour is None else hour, name="ε")
    say(
        f"{analyst} has a share of {share}, and may spend ε = {float(each):g} on a question and "
        f"ε = {float(most):g} in an hour.",
        err=True,
    )
    return Caller(
        name=analyst,
        role="analyst",
        token=f"mcp:{analyst}",  # by this name it is counted what it spends in an hour
        epsilon_question=each,
        epsilon_hour=most,
    )
