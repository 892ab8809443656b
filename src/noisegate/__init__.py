"""A privacy gate in front of sensitive tables: rows go in, only noisy answers come out.

    sources ─► transforms (stability) ─► mechanisms (loss) ─► curator (ledger first) ─► release

>>> import noisegate, pyarrow
>>> gate = noisegate.open(pyarrow.table({"age": [31, 45, 62]}), epsilon=1)
>>> gate.plan("SELECT COUNT(*) AS n FROM data", epsilon=0.5).margins(0.95)
{'n': 6.0}
>>> answer = gate.sql("SELECT COUNT(*) AS n FROM data", epsilon=0.5)
>>> print(answer.cost, gate.remaining)
ε = 0.5 ε = 0.5
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noisegate.client import RemoteGate as RemoteGate
    from noisegate.client import connect as connect
    from noisegate.crowd.histogram import CrowdRelease as CrowdRelease
    from noisegate.desk.answer import Answer as Answer
    from noisegate.desk.plan import Plan as Plan
    from noisegate.errors import NoisegateError as NoisegateError
    from noisegate.errors import OverBudget as OverBudget
    from noisegate.gate import Gate as Gate
    from noisegate.planning.enough import enough as enough
    from noisegate.planning.meaning import meaning as meaning
    from noisegate.releases.forms.table import TableRelease as TableRelease
    from noisegate.root import memory as memory
    from noisegate.root import open as open  # noqa: A004
    from noisegate.sheets import read_csv as read_csv
    from noisegate.synthetic.release import SyntheticRelease as SyntheticRelease

__version__ = "0.1.0"
__all__ = [
    "Answer",
    "CrowdRelease",
    "Gate",
    "NoisegateError",
    "OverBudget",
    "Plan",
    "RemoteGate",
    "SyntheticRelease",
    "TableRelease",
    "connect",
    "enough",
    "meaning",
    "memory",
    "open",
    "read_csv",
]

_HOME = {
    "connect": "noisegate.client",
    "RemoteGate": "noisegate.client",
    "memory": "noisegate.root",
    "open": "noisegate.root",
    "NoisegateError": "noisegate.errors",
    "OverBudget": "noisegate.errors",
    "enough": "noisegate.planning.enough",
    "meaning": "noisegate.planning.meaning",
    "read_csv": "noisegate.sheets",
    "Answer": "noisegate.desk.answer",
    "CrowdRelease": "noisegate.crowd.histogram",
    "Gate": "noisegate.gate",
    "Plan": "noisegate.desk.plan",
    "TableRelease": "noisegate.releases.forms.table",
    "SyntheticRelease": "noisegate.synthetic.release",
    "load_ipython_extension": "noisegate.desk.display.notebook",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name, imported when first used
    from importlib import import_module  # noqa: PLC0415 - keeps `noisegate --help` quick
    from sys import modules  # noqa: PLC0415

    if "IPython" in modules:
        import_module("noisegate.desk.display.notebook")  # refusals are short there
    if name in ("audit", "dp", "learners", "orders"):
        return import_module(f"noisegate.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'noisegate' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
