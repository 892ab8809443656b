"""The classic attacks succeed on raw answers and on classic defences, and fail on the gate."""

import json

import pytest
from scipy.stats import binom
from typer.testing import CliRunner

from noisegate.cli import app
from noisegate.errors import SpecError
from noisegate.lab.attacks.outcome import picture
from noisegate.lab.attacks.run import NAMES, tried
from noisegate.lab.report import page
from noisegate.lab.unpromised import run as unpromised

TIMES, EPSILON = 24, 0.5
FEWER = {"model": 2, "synthetic": 4}  # trials are slow


@pytest.mark.parametrize("name", NAMES)
def test_an_attack_succeeds_on_others_and_fails_on_the_gate(name):
    """A gate that keeps ε fails here with probability below 1e-3, and twice in a row below 1e-6.

    The bound is that of any attacker; bits of one reconstruction are as good as trials.
    """
    (found,) = tried([name], epsilon=EPSILON, times=TIMES)
    assert found.raw.success > 0.8 > found.bound
    assert found.classic.success > found.bound
    played = TIMES // FEWER.get(name, 1)
    assert binom.sf(round(found.gate.success * played) - 1, played, found.bound) > 1e-3


def test_a_broken_gate_is_caught(monkeypatch):
    """Noise for a hundred times the ε: what is claimed for ½ is found out."""
    from noisegate.lab.attacks import counts

    honest = counts.number
    monkeypatch.setattr(counts, "number", lambda gate, sql, e: honest(gate, sql, 100 * e))
    (found,) = tried(["differencing"], epsilon=EPSILON, times=TIMES)
    assert binom.sf(round(found.gate.success * TIMES) - 1, TIMES, found.bound) < 1e-3


def test_the_report_and_a_picture_need_nothing_else(tmp_path):
    found = tried(["differencing", "width"], times=2)
    shown = page(found, unpromised())
    assert shown.count("<svg") == 2
    assert "<script" not in shown
    assert all(each.title in shown for each in found)
    assert "The average height" in shown
    assert picture(found[0]).startswith('<svg xmlns="http://www.w3.org/2000/svg"')


def test_what_is_not_promised_is_learnt_without_the_row():
    """Means of 4,000 people at ε = 10: ± 0.1 % of smokers, far below the tolerance of 3 %."""
    for story in unpromised(epsilon=10):
        assert story.without_row == pytest.approx(story.with_row, rel=0.03)


def test_the_command_prints_tables_json_and_files(tmp_path):
    run = CliRunner().invoke
    args = ["lab", "attacks", "width", "--times", "4"]
    file = tmp_path / "width.svg"
    told = run(app, [*args, "--save", str(file)])
    assert told.exit_code == 0
    assert "exact sums" in told.stdout
    assert file.read_text().startswith("<svg")
    (record,) = json.loads(run(app, [*args, "--json"]).stdout)["attacks"]
    assert record["attack"] == "width"
    assert set(record["trials"]) == {"raw", "classic", "gate"}


@pytest.mark.parametrize(
    ("names", "terms"),
    [(["telepathy"], {}), (["width"], {"times": 1}), (["width"], {"epsilon": 0})],
)
def test_wrong_input_is_refused(names, terms):
    with pytest.raises(SpecError):
        tried(names, **terms)
