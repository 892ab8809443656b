"""The lab's laws, bounds and page: what ε forbids is what the mechanisms keep to."""

import re
from math import exp, inf

import numpy as np
import pytest
from typer.testing import CliRunner

from noisegate.cli import app
from noisegate.errors import SpecError
from noisegate.lab.bounds import bounds
from noisegate.lab.ratios import MECHANISMS, laws, picture
from noisegate.lab.report import report


@pytest.mark.parametrize("epsilon", ["0.2", 1, 3])
@pytest.mark.parametrize("name", MECHANISMS)
def test_pure_mechanisms_keep_the_ratio_and_others_do_not(name, epsilon):
    found = laws(name, epsilon=epsilon)
    pure = name in ("geometric", "truncated-geometric", "exponential", "randomised-response")
    assert (found.forbidden == 0) == pure
    assert (found.largest <= float(epsilon) + 1e-9) == pure
    if name in ("raw", "rounded"):
        assert (found.largest, found.forbidden) == (inf, 1)
    assert found.without.sum() <= 1 + 1e-12
    assert "forbids" in picture(found)
    assert "<script" not in picture(found)


def test_the_exponential_mechanism_over_counts_is_the_geometric_one():
    assert laws("exponential", epsilon="0.5").from_geometric < 1e-15


@pytest.mark.parametrize("name", ["geometric", "truncated-geometric", "gaussian"])
def test_real_draws_follow_the_laws_that_are_drawn(name):
    """20,000 draws: a share is off by 6 σ once in 10⁹ runs."""
    found = laws(name, epsilon=1, draws=20_000)
    sigma = np.sqrt(found.with_me * (1 - found.with_me) / 20_000) + 1e-4
    assert (np.abs(found.drawn - found.with_me) < 6 * sigma).all()


def test_no_bound_is_above_what_is_reached_and_packing_is_nearly_tight():
    for epsilon in ("0.01", "0.1", 1, 2):
        rows = {row.task: row for row in bounds(epsilon=epsilon)}
        assert all(0 <= row.least <= row.reached for row in rows.values())
        best = rows["the best of 1,000 candidates"]
        assert best.reached / best.least < 1.2
    alpha = exp(-1)
    assert bounds(epsilon=1)[0].reached == pytest.approx(2 * alpha / (1 - alpha**2))


def test_the_page_has_all_parts_and_needs_no_network():
    text = report(epsilon=1, times=3, names=("width",))
    for part in ("K(DB - me)", "Exponential = geometric", "Lower bounds", "A map at four prices",
                 "Crowds", "What is not promised"):  # fmt: skip
        assert part in text
    assert not re.search(r"(src|href)=.?https?:|<script", text)
    assert text.count("<svg") == len(MECHANISMS) + 1


@pytest.mark.parametrize("wrong", [{"mechanism": "magic"}, {"epsilon": 0}, {"epsilon": 50}])
def test_what_cannot_be_drawn_is_refused(wrong):
    with pytest.raises(SpecError):
        laws(**({"mechanism": "geometric", "epsilon": 1} | wrong))


def test_the_commands_write_pictures(tmp_path):
    svg = tmp_path / "ratio.svg"
    done = CliRunner().invoke(app, ["lab", "ratio", "--mechanism", "raw", "--save", str(svg)])
    assert done.exit_code == 0
    assert "infinite" in done.output
    assert svg.read_text().startswith("<svg")
    assert "one count" in CliRunner().invoke(app, ["lab", "bounds", "--json"]).output
