"""Programs of analysts: gate.apply, its plan and its release."""

import functools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import noisegate
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.algebra.blocks import STEPS
from noisegate.desk.card import verify
from noisegate.desk.desk import Desk
from noisegate.errors import OverBudget, SpecError, Unsupported
from noisegate.isolated import cell
from noisegate.isolated.lockdown import can_lock
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.smooth.smooth import SmoothLaplace, SmoothLognormal, SmoothStudent
from noisegate.programs.applied import Applied
from noisegate.programs.applying import ApplyOrder
from noisegate.programs.text import program_of
from refusals import about, listed

runs = pytest.mark.skipif(not can_lock(), reason="this machine cannot lock programs in")
PEOPLE = pa.table({"id": np.arange(400) // 2, "age": np.arange(400) % 80, "sex": ["f", "m"] * 200})
TERMS = {"columns": ["age"], "range": (0, 100), "blocks": 4, "seconds": 0.2, "memory": 64}


def gate(epsilon=100, **more):
    columns = {"age": {"between": [0, 100]}}
    return noisegate.open(PEOPLE, unit="id", epsilon=epsilon, columns=columns, **more)


@pytest.fixture(scope="module")
def unspent():
    """A gate that nobody pays at."""
    door = gate()
    yield door
    assert door.spent.epsilon == 0


def mean_age(rows):
    return rows["age"].mean()


@pytest.fixture(scope="module")
def made():
    """One release that several tests look at: 4 blocks at ε = 50, so the noise is below 1."""
    if not can_lock():
        pytest.skip("this machine cannot lock programs in")
    door = gate()
    return door, door.apply(mean_age, epsilon=50, names=["age"], rehearse=False, **TERMS)


def test_a_program_is_answered_within_its_margin(made):
    """Blocks of about 100 rows: their mean is off by 39.5 ± 23/20 · 5.5, the noise by 1e-9's tail."""
    _, release = made
    (width,) = release.margins("0.999999999")
    assert width == pytest.approx(100 / (4 * 50) * math.log(1e9), rel=0.01)
    assert abs(release.value - 39.5) < width + 6.4
    assert release.values == (release.value,) == (float(release),)


def test_it_is_free_the_second_time_and_the_same(made):
    door, release = made
    again = door.apply(mean_age, epsilon=50, names=["mean"], **TERMS)
    assert again.free
    assert again.values == release.values
    assert door.spent.epsilon == 50
    assert door.apply_plan(mean_age, epsilon=50, **TERMS).price.epsilon == 0


def test_its_card_is_in_the_ledger_and_its_promise_is_plain(made):
    door, release = made
    assert verify(release.card(), door.ledger) == []
    assert "ε = 50" in release.promise
    assert "±" in str(release)
    assert "4 blocks" in repr(release)
    with pytest.raises(AttributeError):
        release.released = (1,)


def test_it_is_saved_and_read_again(made, tmp_path):
    _, release = made
    for ending in (".parquet", ".csv", ".json", ".md"):
        release.save(tmp_path / f"x{ending}")
    loaded = Applied.load(tmp_path / "x.parquet")
    assert loaded.values == release.values
    assert loaded.margins() == release.margins()
    assert loaded.promise == release.promise
    assert loaded.source == release.source == "def mean_age(rows):\n    return rows['age'].mean()"
    assert loaded.card().to_dict() == release.card().to_dict()


@runs
@pytest.mark.parametrize(("aggregate", "epsilon"), [("median", 100), ("center", 16)])
def test_other_aggregates_are_near_too(aggregate, epsilon):
    """Every block says 25; at these prices they are off by more than 1 with less than 1e-6."""
    door = gate(epsilon=1000)
    release = door.apply(
        lambda rows: 25 + 0 * len(rows["sex"]),
        "SELECT sex FROM data WHERE age > 5",
        range=(0, 100),
        blocks=8,
        seconds=0.2,
        memory=64,
        trusted=True,
        workers=4,
        epsilon=epsilon,
        aggregate=aggregate,
        rehearse=False,
    )
    assert abs(release.value - 25) < 1
    assert release.margins() is None
    assert 0.999 * epsilon < door.spent.epsilon <= epsilon
    assert release.plot() is not None


@runs
def test_several_numbers_share_the_price_and_a_failing_block_is_the_default(tmp_path):
    door = gate()
    release = door.apply(
        lambda rows: (10, 200 if len(rows["age"]) else 0, -5),
        epsilon=60,
        default=[1, 2, 3],
        rehearse=False,
        **TERMS | {"range": [(0, 20), (0, 100), (-10, 10)], "blocks": 2},
    )
    assert [round(value) for value in release.values[:2]] == pytest.approx([10, 100], abs=25)
    assert door.spent.epsilon == 60
    (tmp_path / "wrong.py").write_text("def f(rows): raise ValueError")
    silent = door.apply(
        f"{tmp_path}/wrong.py:f",
        epsilon=30,
        default=80,
        rehearse=False,
        **TERMS | {"blocks": 2},
    )
    assert abs(silent.value - 80) < 100 / (2 * 30) * math.log(1e7)


@runs
def test_nothing_is_paid_for_a_program_that_fails_on_made_up_rows():
    door, patient = gate(), TERMS | {"seconds": 5}  # a busy machine is slow to begin
    with pytest.raises(SpecError, match="KeyError: 'wage'"):
        door.apply(lambda rows: rows["wage"].mean(), epsilon=1, **patient)
    with pytest.raises(
        SpecError, check=about("rehearsal")
    ):  # of made-up rows some values are missing
        door.apply(mean_age, epsilon=1, **patient)
    assert door.spent.epsilon == 0
    with pytest.raises(OverBudget):
        door.apply(mean_age, epsilon=101, rehearse=False, **TERMS)


@runs
def test_a_trusted_program_is_not_locked_in_and_the_promise_says_so(tmp_path):
    (tmp_path / "own").write_text("7")
    path = str(tmp_path / "own")
    release = gate().apply(
        lambda rows: float(Path(path).read_text()),
        epsilon=40,
        trusted=True,
        workers=2,
        rehearse=False,
        **TERMS | {"range": (0, 10)},
    )
    assert abs(release.value - 7) < 10 / (4 * 40) * math.log(1e7)
    assert "trusted" in release.promise
    assert any("trusted" in words for words in release.answer().caveats)


@runs
def test_what_this_machine_cannot_run_is_refused_before_any_charge(monkeypatch):
    door = gate()
    monkeypatch.setattr(cell, "_memory_of_machine", lambda: 127 << 20)
    with pytest.raises(SpecError, check=about("memory")):
        door.apply(mean_age, epsilon=1, rehearse=False, **TERMS)
    monkeypatch.setattr(cell, "_memory_of_machine", lambda: 255 << 20)
    with pytest.raises(SpecError, check=about("memory")):
        door.apply(mean_age, epsilon=1, rehearse=False, workers=2, **TERMS)
    monkeypatch.setattr(cell, "can_lock", lambda: False)
    with pytest.raises(Unsupported, check=about("isolation")):
        door.apply(mean_age, epsilon=1, rehearse=False, **TERMS)
    assert door.spent.epsilon == 0


def test_only_the_steward_trusts_a_program(tmp_path):
    """Not locked in, a program could write down all rows that it sees."""
    copied = str(tmp_path / "rows")
    door = gate(analyst="ana", share=1)
    with pytest.raises(Unsupported, check=about("steward")):
        door.apply(
            lambda rows: Path(copied).write_text(str(rows)), epsilon=1, trusted=True, **TERMS
        )
    assert not Path(copied).exists()
    assert door.spent.epsilon == 0


@runs
def test_a_narrowed_mean_tells_its_own_margin_and_its_progress(tmp_path):
    """All blocks say 25: quartiles are off by less than a rank, and the range is 5 grid points."""
    door, seen = gate(epsilon=100), []
    release = door.apply(
        lambda rows: 25,
        epsilon=100,
        narrow=True,
        rehearse=False,
        progress=lambda part, words: seen.append(part),
        trusted=True,
        workers=4,
        **TERMS | {"blocks": 8},
    )
    (width,) = release.margins("0.999999")
    assert width < 0.1 < 100 / (8 * 100) * math.log(1e6)  # of the same mean, not narrowed
    assert abs(release.value - 25) < width + 0.5
    assert door.spent.epsilon == 100
    assert seen == sorted(seen)
    assert seen[-1] == 1
    release.save(tmp_path / "x.parquet")
    assert Applied.load(tmp_path / "x.parquet").margins() == release.margins()


# plans


def test_a_plan_tells_price_time_and_error_and_runs_nothing(unspent):
    door = unspent
    plan = door.apply_plan(lambda rows: 1 / 0, epsilon=2, **TERMS | {"blocks": 50, "seconds": 1})
    facts = dict(plan.facts())
    assert facts["price"] == "ε = 2"
    assert 50 < plan.expected.seconds < 65
    assert plan.expected.widths(0.95)[0] == pytest.approx(100 / (50 * 2) * math.log(20), rel=0.01)
    assert plan.to_dict()["blocks"] == 50


def test_within_buys_the_cheapest_noise_that_keeps_it(unspent):
    door = unspent
    plan = door.apply_plan(mean_age, within=3, **TERMS | {"blocks": 50})
    assert plan.expected.widths(0.95)[0] <= 3
    dearer = door.apply_plan(
        mean_age, epsilon=plan.price.epsilon * Fraction(99, 100), **TERMS | {"blocks": 50}
    )
    assert dearer.expected.widths(0.95)[0] > 3


def test_epsilon_and_within_say_how_many_blocks(unspent):
    terms = {name: value for name, value in TERMS.items() if name != "blocks"}
    plan = unspent.apply_plan(mean_age, epsilon=1, within=2, resample=2, **terms)
    assert plan.expected.widths(0.95)[0] <= 2
    assert plan.price.epsilon == 1
    fewer = unspent.apply_plan(
        mean_age, epsilon=1, resample=2, blocks=plan.expected.tally.blocks - 1, **terms
    )
    assert fewer.expected.widths(0.95)[0] > 2
    with pytest.raises(SpecError, check=about("within")):
        unspent.apply_plan(mean_age, epsilon=1, within=2, aggregate="median", **terms)


def test_dealing_more_often_does_not_change_the_noise_of_a_mean(unspent):
    one, four = (
        unspent.apply_plan(mean_age, epsilon=1, resample=n, **TERMS | {"blocks": 40})
        for n in (1, 4)
    )
    assert four.expected.widths(0.95)[0] == pytest.approx(one.expected.widths(0.95)[0], rel=1e-3)
    assert four.expected.seconds == pytest.approx(4 * one.expected.seconds)


def test_blocks_at_once_take_less_time_and_more_noise_unless_they_are_trusted(unspent, monkeypatch):
    monkeypatch.setattr("noisegate.isolated.cell._processors", lambda: [*range(4)])

    def plan(**more):
        return unspent.apply_plan(mean_age, epsilon=1, **TERMS | {"blocks": 40} | more)

    one, four, own = plan(), plan(workers=4), plan(workers=4, trusted=True)
    assert four.expected.seconds == own.expected.seconds == pytest.approx(one.expected.seconds / 4)
    assert four.expected.widths(0.95)[0] == pytest.approx(
        4 * one.expected.widths(0.95)[0], rel=1e-3
    )
    assert own.expected.widths(0.95) == one.expected.widths(0.95)


def test_the_number_of_blocks_follows_from_public_rows(unspent):
    terms = {name: value for name, value in TERMS.items() if name != "blocks"}
    assert (
        unspent.apply_plan(mean_age, rows=100_000, epsilon=1, **terms).expected.tally.blocks == 100
    )


@pytest.mark.parametrize(
    ("aggregate", "kind"), [("mean", DiscreteGaussian), ("center", SmoothLognormal)]
)
def test_accounts_of_rho_pay_the_same_rho(aggregate, kind):
    """Of whatever kind the noise is: two numbers together cost the ρ that ε buys."""
    door = gate(epsilon=20, delta="1e-6", accountant="zcdp")
    price = door._desk.asked(Fraction(2))
    terms = {"epsilon": price, "aggregate": aggregate, **TERMS, "range": [(0, 1), (0, 9)]}
    asked = ApplyOrder.of(mean_age, **terms).job(Desk(door._curator, door._rules)).measurement
    assert {type(each) for each in asked.mechanisms} == {kind}
    assert Fraction(1999, 1000) < zcdp_loss(asked.event()).rho <= 2


def test_a_centre_with_a_delta_has_lighter_noise():
    door = gate(delta="1e-3")

    def noise(**more):
        terms = {"epsilon": 1, "aggregate": "center", **TERMS, **more}
        job = ApplyOrder.of(mean_age, **terms).job(Desk(door._curator, door._rules))
        return job.measurement.mechanisms[0]

    assert type(noise()) is SmoothStudent
    assert type(noise(delta="1e-6")) is SmoothLaplace
    assert noise().high == 2 * STEPS
    with pytest.raises(SpecError, check=about("delta")):
        noise(delta="1e-6", resample=2)
    with pytest.raises(SpecError, check=about("delta")):
        noise(delta="1e-6", workers=2)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"range": 5}, "* range"),
        ({"range": (3, 2)}, "* range"),
        ({"range": [(0, 1), (2,)]}, "* range"),
        ({"blocks": None}, "* blocks"),
        ({"rows": 100}, "* blocks"),
        ({"aggregate": "sum"}, "* aggregate"),
        ({"epsilon": None}, "price"),
        ({"within": 1}, "within"),
        ({"delta": "1e-6"}, "delta"),
        ({"narrow": True}, "* quartiles"),
        ({"narrow": True, "aggregate": "median"}, "* narrow"),
        ({"columns": "age"}, "columns"),
        ({"columns": []}, "* No column"),
        ({"columns": ["wage"]}, "column"),
        ({"table": "nobody"}, "table"),
        ({"default": 101}, "default"),
        ({"default": (1, 2)}, "default"),
        ({"names": ("a", "b")}, "* name"),
        ({"seconds": 0}, "positive seconds"),
        ({"workers": 0}, "whole workers"),
        ({"speed": 3}, "option speed"),
    ],
)
def test_what_cannot_be_asked_is_refused_for_nothing(unspent, terms, words):
    with pytest.raises((SpecError, Unsupported), check=listed(words)):
        unspent.apply(mean_age, **{"epsilon": 1, **TERMS, **terms})


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM data",
        "SELECT age FROM data LIMIT 5",
        "SELECT age FROM data) AS a, (SELECT sex FROM data",
        "SELECT 1",
        "SELECT age FROM data GROUP BY age",
    ],
)
def test_sql_that_shows_no_rows_is_refused(unspent, sql):
    with pytest.raises(Unsupported):
        unspent.apply(mean_age, sql, range=(0, 100), blocks=4, epsilon=1)


# programs

FACTOR, HIDDEN = 3, object()


def scaled(values):
    return math.sqrt(values.sum()) * FACTOR + Kept(2).size


class Kept:
    def __init__(self, size):
        self.size = size


def test_a_function_takes_along_what_it_uses():
    weight = 2.5

    def inner(rows, more=FACTOR):
        import statistics

        return scaled(rows["age"]) * weight + more + statistics.mean([1, 3])

    program = program_of(inner, imports=("colorsys",))
    scope = {}
    exec(program.text, scope)
    rows = {"age": np.array([4, 5])}
    assert scope[program.name](rows) == inner(rows)
    assert program.imports == ("math", "statistics", "colorsys")


def test_the_same_function_in_other_words_is_the_same_program(tmp_path):
    texts = ("def f(rows):\n    return 1 + 2", "# why\ndef f( rows ):  # x\n\n   return (1+2)\n")
    found = set()
    for place, text in enumerate(texts):
        (tmp_path / f"{place}.py").write_text(text)
        found.add(program_of(f"{tmp_path}/{place}.py:f"))
    assert len(found) == 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda rows: HIDDEN, "name 'HIDDEN'"),
        (len, "function"),
        (functools.partial(mean_age), "function"),
        ("program", "place"),
        ("nowhere.py:f", "file"),
        ([lambda rows: 1, lambda rows: 2][0], "ambiguous"),
        (eval("lambda rows: 1"), "source"),
    ],
)
def test_what_is_no_program_is_refused(function, words):
    with pytest.raises(SpecError, check=listed(words)):
        program_of(function)


def test_a_file_must_hold_the_function(tmp_path):
    (tmp_path / "a.py").write_text("def g(rows): return 1")
    (tmp_path / "b.py").write_text("def g(rows) return 1")
    with pytest.raises(SpecError, check=about("function")):
        program_of(f"{tmp_path}/a.py:f")
    with pytest.raises(SpecError, check=about("syntax")):
        program_of(f"{tmp_path}/b.py:g")


# --- modules -------------------------------------------------------------------------------------

POLICY = """
name = "people"
[budget]
epsilon = 8
[tables.people]
every_row_is_one_person = true
[tables.people.columns]
age = { type = "integer", between = [0, 100] }
"""


@pytest.mark.parametrize("rehearse", [True, False])
@pytest.mark.parametrize(
    "line", ["import venv.__main__", "import subprocess", "import numpy.__main__"]
)
def test_modules_that_nobody_allowed_are_never_loaded(
    unspent, tmp_path, monkeypatch, line, rehearse
):
    """They would run unlocked, before anything is paid: one of these makes folders."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.py").write_text(f"def f(rows):\n    {line}\n    return 1")
    with pytest.raises(Unsupported, check=about("import")):
        unspent.apply(f"{tmp_path}/p.py:f", epsilon=1, rehearse=rehearse, **TERMS)
    assert unspent.spent.epsilon == 0
    assert [file.name for file in tmp_path.iterdir()] == ["p.py"]


@pytest.mark.skipif(not can_lock(), reason="this machine cannot lock programs in")
def test_a_policy_says_which_packages_programs_import(tmp_path):
    (tmp_path / "people.csv").write_text("age\n" + "50\n" * 40)
    text = "def f(rows):\n    import graphlib, packaging.version\n    return 10"
    (tmp_path / "p.py").write_text(text)
    terms = {"columns": ["age"], "range": (0, 100), "blocks": 2, "seconds": 0.5, "memory": 64}
    for modules, allowed in (("", False), ('[programs]\nmodules = ["packaging"]\n', True)):
        (tmp_path / "people.toml").write_text(POLICY + modules)
        door = noisegate.open(tmp_path / "people.toml")
        if not allowed:
            with pytest.raises(
                Unsupported,
                check=about("import"),
                match=r"'packaging.version'.*\[programs\] modules",
            ):
                door.apply(f"{tmp_path}/p.py:f", epsilon=1, **terms)
            assert door.spent.epsilon == 0
        else:
            assert door.apply(f"{tmp_path}/p.py:f", epsilon=8, **terms).answers == 2


@pytest.mark.skipif(not can_lock(), reason="this machine cannot lock programs in")
def test_what_a_rehearsal_finds_missing_is_loaded_only_if_it_is_allowed(unspent):
    def hidden(rows):
        return __import__("pdb").line_prefix  # no line names it

    with pytest.raises(Unsupported, check=about("import"), match="'pdb'"):
        unspent.apply(hidden, epsilon=1, **TERMS)
    assert unspent.spent.epsilon == 0
