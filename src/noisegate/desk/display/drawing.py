"""The package that draws, an extra; and charts as text and images, without a network.

A chart is an SVG, and stands below the table of an answer as an image that holds all of itself:
nothing is loaded from anywhere, and nothing in it runs.
"""

import re
from base64 import b64encode
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from io import StringIO
from typing import Any, Final, TypeAlias

from noisegate.errors import NoisegateError
from noisegate.extras import extra

Chart: TypeAlias = Any  # of altair, which may be missing
_GRADIENT: Final = re.compile(r"gradient_\d+")
_SVG: Final = "image/svg+xml"
ROWS_MIN: Final = 3  # of an answer that is worth a picture: fewer are read


def altair() -> Chart:
    """The package that draws, an extra."""
    return extra("altair", "Plots", "plot")


def require_drawing() -> None:
    """Refuse where nothing can be drawn into a file, before it is paid for."""
    altair()
    extra("vl_convert", "Pictures in files", "plot")


def svg(chart: Chart) -> str:
    """A chart as text: the same for the same chart, though gradients are numbered by process."""
    page = StringIO()
    chart.save(page, format="svg")
    text = page.getvalue()
    places = {name: n for n, name in enumerate(dict.fromkeys(_GRADIENT.findall(text)))}
    return _GRADIENT.sub(lambda found: f"gradient_{places[found[0]]}", text)


def image(plot: Callable[[], Any]) -> str:
    """A chart as an image in HTML; nothing where it cannot be drawn, or the extra is missing."""
    try:
        require_drawing()
        text = svg(plot())
    except NoisegateError:
        return ""
    held = b64encode(text.encode()).decode()
    return f'<img style="max-width:100%" alt="chart" src="data:{_SVG};base64,{held}"/>'


def offline(chart: Chart) -> Chart:
    """The same chart, which a notebook shows as an SVG; altair's own page asks the network."""
    kind: Any = type(chart)
    object.__setattr__(chart, "__class__", _offline(kind))  # its own sets a property
    return chart


@cache
def _offline(kind: Any) -> type:  # noqa: ANN401 - a class of charts
    """A kind of charts that draws itself, unless another renderer of altair's was enabled."""

    def bundle(self: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as IPython calls it
        if altair().renderers.active != "default" or find_spec("vl_convert") is None:
            return kind._repr_mimebundle_(self, *args, **options)
        return {_SVG: svg(self), "text/plain": f"<{kind.__name__} of altair>"}

    return type(
        kind.__name__, (kind,), {"_repr_mimebundle_": bundle, "__module__": kind.__module__}
    )
