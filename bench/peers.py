"""The peers, each in an environment of its own, noising a histogram's cells in the same run."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import noise
from noisegate.noise.continuous import Gaussian, Laplace, rounded
from noisegate.noise.gaussian import discrete_gaussian
from noisegate.noise.geometric import discrete_laplace
from show import Column, Row

BENCH = Path(__file__).parent
ENVIRONMENTS = BENCH.parent / ".bench" / "peers"
PEERS = {
    "opendp": "OpenDP", "pydp": "PyDP", "diffprivlib": "diffprivlib", "tmlt": "Tumult Core",
}  # fmt: skip
INSTALL_LIMIT_S, RUN_LIMIT_S = 900, 600

OURS: dict[str, Callable[[int], Any]] = {
    "discrete Laplace, scale 1": partial(discrete_laplace, 1),
    "Laplace on floats, scale 1": partial(rounded, Laplace(), 1024),  # on a grid of 1/1024
    "discrete Gaussian, σ 1": partial(discrete_gaussian, 1),
    "Gaussian on floats, σ 1": partial(rounded, Gaussian(), 1024),
}
NUMPY = {law: "laplace" if "Laplace" in law else "normal" for law in OURS}
SIDES: tuple[Column, ...] = (
    ("law", "law", ""),
    ("NumPy, floats, not secure", "numpy", "millions"),
    ("noisegate", "noisegate", "millions"),
    *((f"{name}", peer, "millions") for peer, name in PEERS.items()),
    ("noisegate ÷ the fastest peer", "times", ",.0f"),
)
TIMES_MIN = {("opendp", "discrete Gaussian, σ 1"): 100}  # stated targets


class PeerError(Exception):
    """Why a peer has no figures."""


def measure(
    cells: int = noise.HISTOGRAM_CELLS,
    *,
    peers: Iterable[str] = PEERS,
    say: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """A row per law and peer; a peer that cannot be installed or run has one row saying why."""
    found: list[Row] = []
    for peer in peers:
        say(f"{peer}: installed at the first run, then measured …")
        try:
            said = _run(peer, cells)
        except PeerError as why:
            found.append({"law": "all", "peer": peer, "size": cells, "failed": str(why)})
            continue
        found += [_row(law, peer, cells, said) for law in OURS]
    return sorted(found, key=lambda row: [*OURS, "all"].index(row["law"]))


def side_by_side(found: list[Row], cells: int) -> list[Row]:
    """A row for each law: what is not private, ours, and every peer, in draws a second."""
    rows = []
    for law, numpy in NUMPY.items():
        limit = noise.warm(noise.NUMPY[numpy], cells, repeats=101)
        ours = noise.warm(OURS[law], cells, repeats=101)
        row: Row = {"law": law, "numpy": cells / limit.cpu_ms * 1e3,
                    "noisegate": cells / ours.cpu_ms * 1e3}  # fmt: skip
        theirs = {
            each["name"]: each["draws_per_s"]
            for each in found
            if each["law"] == law and "draws_per_s" in each
        }
        times = row["noisegate"] / max(theirs.values()) if theirs else None
        rows.append(row | theirs | {"times": times})
    return rows


def _row(law: str, peer: str, cells: int, said: Any) -> Row:
    row: Row = {"law": law, "name": peer, "peer": said["release"], "size": cells}
    theirs = said["laws"].get(law, {"failed": "it has no such law"})
    if "failed" in theirs:
        return row | theirs
    ours = noise.warm(OURS[law], cells, repeats=101)
    times, least = theirs["cpu_ms"] / ours.cpu_ms, TIMES_MIN.get((peer, law))
    return row | {
        "wall_ms": theirs["wall_ms"],
        "cpu_ms": theirs["cpu_ms"],
        "draws_per_s": cells / theirs["cpu_ms"] * 1e3,
        "ours_wall_ms": ours.wall_ms,
        "ours_cpu_ms": ours.cpu_ms,
        "times_peer": times,
        "target": f"≥ {least} ×" if least else None,
        "met": times >= least if least else None,
    }


def _run(peer: str, cells: int) -> Any:
    script = BENCH / "peers" / f"run_{peer}.py"
    variables = os.environ | {"PYTHONPATH": str(BENCH), "PYTHONWARNINGS": "ignore"}
    said = call([str(environment(peer)), str(script), str(cells)], RUN_LIMIT_S, "run", variables)
    return json.loads(said.splitlines()[-1])


def environment(peer: str, *options: str) -> Path:
    """The peer's Python, installed once: again only when its pins or our Python change."""
    home = ENVIRONMENTS / peer
    pins = BENCH / "peers" / f"{peer}.txt"
    python, stamp = home / "bin" / "python", home / "installed.txt"
    wanted = f"{sys.version}\n{pins.read_text()}"
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(home, ignore_errors=True)
    call([sys.executable, "-m", "venv", str(home)], INSTALL_LIMIT_S, "get an environment")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    call([*pip, *options, "--requirement", str(pins)], INSTALL_LIMIT_S, "be installed")
    stamp.write_text(wanted)
    return python


def call(
    command: list[str], limit_s: float, doing: str, variables: dict[str, str] | None = None
) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, check=True, env=variables
        )
    except subprocess.TimeoutExpired:
        raise PeerError(f"could not {doing} within {limit_s} s") from None
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if line.strip()]
        raise PeerError(f"could not {doing}: {lines[-1] if lines else error}") from None
    return done.stdout
