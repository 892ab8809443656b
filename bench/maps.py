"""A whole map of taxi trips: every cell with noise of its own, beside what `auto` makes of it."""

import zlib
from base64 import b64encode
from collections.abc import Iterator
from fractions import Fraction
from statistics import mean

import numpy as np

from noisegate.noise.bits import SYSTEM
from noisegate.releases.cells.workload import cells
from noisegate.releases.recipes import recipe
from section import DATA, ROOT, Effort, Shown, released, standard_error
from show import Column, Row
from trials import TrialAsk

PICTURE = ROOT / ".bench" / "map.png"
MAP, MAP_EPSILONS = "BEIJING-CABS-E", (1.0, 0.1, 0.01, 0.001)
LESS, LESS_FROM = 3, 0.1  # at least 3 × lower from this ε downwards
SURE = 5  # standard errors: one false alarm in a million

MAPS: tuple[Column, ...] = (
    ("ε", "epsilon", "g"),
    ("plain", "plain", ".4g"),
    ("±", "plain_se", ".2g"),
    ("2α/(1-α²)", "exact", ".4g"),
    ("equal", "equal", "met"),
    ("auto", "auto", ".4g"),
    ("± ", "auto_se", ".2g"),
    ("× lower", "lower", ".1f"),
    ("target", "target", ""),
    ("met", "met", "met"),
)


def headline(effort: Effort) -> Iterator[Shown]:
    """The whole map: every cell with noise of its own, beside what auto makes of it."""
    table = np.load(DATA / "dpbench-2d" / "dpbench_2d_256x256.npz")[MAP].astype(np.int64)
    asked = cells(table.shape)
    rows: list[Row] = []
    pictures: dict[str, list[np.ndarray]] = {"plain": [], "auto": []}
    for epsilon in MAP_EPSILONS:
        found: dict[str, list[float]] = {"plain": [], "auto": []}
        for trial in range(effort.trials):
            for way, method in (("plain", "cells"), ("auto", "auto")):
                ask = TrialAsk(table, Fraction(str(epsilon)), bits=SYSTEM)
                estimate = recipe(method).build(ask, asked)
                values = estimate.cells if way == "plain" else released(estimate, asked)
                found[way].append(float(np.abs(values - table).mean()))
                if trial == 0:
                    pictures[way].append(np.maximum(values, 0))
        rows.append(_map_row(epsilon, found, table.size))
        effort.say(f"ε = {epsilon:g}: {rows[-1]['lower']:.1f} × lower")
    save_pictures({"truth": [table] * len(MAP_EPSILONS), **pictures})
    yield Shown(f"{MAP}, 256 × 256: mean |error| per cell; pictures in .bench/map.png", MAPS, rows)


def _map_row(epsilon: float, found: dict[str, list[float]], count: int) -> Row:
    alpha = np.exp(-epsilon)
    exact = float(2 * alpha / (1 - alpha**2))
    spread = (2 * alpha / (1 - alpha) ** 2 - exact**2) / (count * len(found["plain"]))
    plain, auto = mean(found["plain"]), mean(found["auto"])
    low = epsilon <= LESS_FROM
    return {
        "epsilon": epsilon,
        "plain": plain,
        "plain_se": standard_error(found["plain"]),
        "exact": exact,
        "equal": bool(abs(plain - exact) <= SURE * np.sqrt(spread)),
        "auto": auto,
        "auto_se": standard_error(found["auto"]),
        "lower": plain / auto,
        "target": f"≥ {LESS} × lower" if low else None,
        "met": plain / auto >= LESS if low else None,
    }


def save_pictures(rows: dict[str, list[np.ndarray]]) -> None:
    """Maps side by side, named by row and ε: dark is many, on a scale common to all."""
    from vl_convert import svg_to_png  # noqa: PLC0415 - of the extra "plot"

    top = np.log1p(max(image.max() for row in rows.values() for image in row))
    side, gap, left, head = 256, 12, 64, 32
    parts = []
    for column, epsilon in enumerate(MAP_EPSILONS):
        at = left + column * (side + gap) + side // 2
        parts.append(f'<text x="{at}" y="20" text-anchor="middle">ε = {epsilon:g}</text>')
    for row, (name, images) in enumerate(rows.items()):
        y = head + row * (side + gap)
        parts.append(f'<text x="8" y="{y + side // 2}">{name}</text>')
        for column, image in enumerate(images):
            shades = (255 - np.rint(255 * np.log1p(image) / top)).astype(np.uint8)
            held = b64encode(png(shades)).decode()
            x = left + column * (side + gap)
            where = f'x="{x}" y="{y}" width="{side}" height="{side}"'
            parts.append(f'<rect {where} fill="none" stroke="#999" stroke-width="2"/>')
            parts.append(f'<image {where} href="data:image/png;base64,{held}"/>')
    words = "Darker is more: logarithms, on one scale. Numbers below 0 are drawn as 0."
    width, last = left + len(MAP_EPSILONS) * (side + gap), head + len(rows) * (side + gap)
    height = last + head
    parts.append(f'<text x="{left}" y="{last + 14}">{words}</text>')
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="15"><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(parts)}</svg>"
    )
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_bytes(svg_to_png(svg))


def png(pixels: np.ndarray) -> bytes:
    """A grey picture: signature, size, lines without a filter."""
    height, width = pixels.shape
    head = width.to_bytes(4) + height.to_bytes(4) + bytes([8, 0, 0, 0, 0])
    body = b"".join(b"\0" + line.tobytes() for line in pixels)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(body)), (b"IEND", b""))
    chunks = (
        len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
