"""What notebooks get: pictures without a network, and ``%%noisegate`` cells.

A chart is an SVG, and stands below the table of an answer as an image that holds all of itself:
nothing is loaded from anywhere, and nothing in it runs.

    %load_ext noisegate

    %%noisegate gate --epsilon 0.5 --to visits
    SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward
"""

import os
import re
import traceback
from base64 import b64encode
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from typing import Any, Final

from noisegate.errors import DEBUG, NoisegateError, SpecError

_GRADIENT: Final = re.compile(r"gradient_\d+")
_CELLS: Final = ("<ipython", "ipykernel")  # in the names of files that are cells
ROWS_MIN: Final = 3  # of an answer that is worth a picture: fewer are read
_SVG: Final = "image/svg+xml"
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


def svg(chart: Any) -> str:  # noqa: ANN401 - a chart
    """A chart as text: the same for the same chart, though gradients are numbered by process."""
    page = StringIO()
    chart.save(page, format="svg")
    text = page.getvalue()
    places = {name: n for n, name in enumerate(dict.fromkeys(_GRADIENT.findall(text)))}
    return _GRADIENT.sub(lambda found: f"gradient_{places[found[0]]}", text)


def image(plot: Callable[[], Any]) -> str:
    """A chart as an image in HTML; nothing where it cannot be drawn, or the extra is missing."""
    from noisegate.desk.display.plot import require_drawing  # noqa: PLC0415 - slow to load

    try:
        require_drawing()
        text = svg(plot())
    except NoisegateError:
        return ""
    held = b64encode(text.encode()).decode()
    return f'<img style="max-width:100%" alt="chart" src="data:{_SVG};base64,{held}"/>'


def offline(chart: Any) -> Any:  # noqa: ANN401 - a chart
    """The same chart, which a notebook shows as an SVG; altair's own page asks the network."""
    kind: Any = type(chart)
    object.__setattr__(chart, "__class__", _offline(kind))  # its own sets a property
    return chart


@cache
def _offline(kind: Any) -> type:  # noqa: ANN401 - a class of charts
    """A kind of charts that draws itself, unless another renderer of altair's was enabled."""
    from noisegate.desk.display.plot import altair  # noqa: PLC0415 - slow to load

    def bundle(self: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as IPython calls it
        if altair().renderers.active != "default" or find_spec("vl_convert") is None:
            return kind._repr_mimebundle_(self, *args, **options)
        return {_SVG: svg(self), "text/plain": f"<{kind.__name__} of altair>"}

    return type(
        kind.__name__, (kind,), {"_repr_mimebundle_": bundle, "__module__": kind.__module__}
    )


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
