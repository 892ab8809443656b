"""What notebooks get: short refusals, and ``%%noisegate`` cells.

%load_ext noisegate

%%noisegate gate --epsilon 0.5 --to visits
SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward
"""

import os
import traceback
from importlib import import_module
from typing import Any, Final

from noisegate.errors import DEBUG, NoisegateError, SpecError

_CELLS: Final = ("<ipython", "ipykernel")  # in the names of files that are cells
_OPTIONS: Final = {
    "gate": "the name of a gate",
    "--epsilon": "the price; by default that of the policy",
    "--within": "instead of a price: the largest error",
    "--confidence": "of that error; by default 0.95",
    "--plan": "show price and error; free",
    "--fresh": "pay for a new draw",
    "--to": "a variable for the answer",
}


def shown_refusal(error: NoisegateError) -> list[str]:
    """What a notebook shows of one: what is wrong, what to do, and where it was asked."""
    if os.environ.get(DEBUG):
        return traceback.format_exception(error)
    calls = traceback.extract_tb(error.__traceback__)
    cells = [each for each in calls if any(name in each.filename for name in _CELLS)]
    asked = [each for each in cells[-1:] if "run_cell_magic" not in str(each.line)]
    where = [f"  line {each.lineno} of the cell: {each.line}" for each in asked]
    return [f"{error.code}: {error.problem}", f"  {error.fix}", *where]


NoisegateError._render_traceback_ = shown_refusal  # type: ignore[attr-defined]  # IPython asks for it


def load_ipython_extension(shell: Any) -> None:  # noqa: ANN401 - IPython may be missing
    """What ``%load_ext noisegate`` calls."""
    shell.register_magic_function(_magic(shell), "line_cell", "noisegate")


def _magic(shell: Any) -> Any:  # noqa: ANN401
    """``%%noisegate gate``, with its options as ``%noisegate?`` lists them."""
    told: Any = import_module("IPython.core.magic_arguments")  # a notebook has it

    def noisegate(line: str, cell: str | None = None) -> Any:  # noqa: ANN401 - an answer or a plan
        """Ask a gate in SQL."""
        said = told.parse_argstring(made, line)
        gate = shell.user_ns.get(said.gate)
        if not hasattr(gate, "sql"):
            raise SpecError(
                f"{said.gate!r} is not a gate.", fix=f'{said.gate} = noisegate.open("policy.toml")'
            )
        if cell is None:
            return gate
        terms = {name: getattr(said, name) for name in ("epsilon", "within", "confidence")}
        asked = {name: term for name, term in terms.items() if term is not None}
        ask = gate.plan if said.plan else gate.sql
        found = ask(cell.strip().removesuffix(";"), fresh=said.fresh, **asked)
        if said.to:
            shell.user_ns[said.to] = found
        return found

    made: Any = noisegate
    for name, about in reversed(_OPTIONS.items()):
        flag = {"action": "store_true"} if name in ("--plan", "--fresh") else {}
        made = told.argument(name, help=about, **flag)(made)
    made = told.magic_arguments()(made)
    return made
