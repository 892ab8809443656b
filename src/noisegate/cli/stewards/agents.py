"""The command that lets an agent ask: the tools of a policy over standard input and output."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noisegate.cli.app import PolicyFile, app
from noisegate.cli.printing import say

if TYPE_CHECKING:
    from noisegate.server.people import Caller

_QUESTION, _HOUR = 10, 4  # parts of the share, where nothing is said


@app.command()
def mcp(
    file: PolicyFile,
    analyst: Annotated[
        str, typer.Option(help="Who is asking: the agent, a line under [analysts] of the policy.")
    ],
    epsilon_question: Annotated[
        str | None,
        typer.Option(help="The most one question may cost: by default a tenth of the share."),
    ] = None,
    epsilon_hour: Annotated[
        str | None, typer.Option(help="The most in any hour: by default a quarter of the share.")
    ] = None,
    state: Annotated[
        str | None, typer.Option(help="The service's store: by default beside the policy.")
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
    from noisegate.errors import PolicyError  # noqa: PLC0415
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
