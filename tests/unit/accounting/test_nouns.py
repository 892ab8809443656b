from dataclasses import fields
from datetime import date, datetime
from fractions import Fraction

import numpy as np
import pytest

from noisegate.errors import LedgerError, SpecError
from noisegate.privacy.distance import L1, L2, LInf1
from noisegate.privacy.event import (
    EVENTS,
    DeclaredEvent,
    Event,
    ExponentialEvent,
    GeometricEvent,
    Parallel,
    PoissonSampled,
    Repeated,
    Sequential,
    decode,
    encode,
)
from noisegate.privacy.loss import ZCDP, ApproxDP, RenyiDP
from noisegate.privacy.release import Release
from noisegate.privacy.unit import PrivacyUnit

EVENT = GeometricEvent(scale=2, sensitivity=L1(1))


def curve(*epsilons, orders=(2, 3)):
    return RenyiDP(tuple(map(Fraction, orders)), tuple(map(Fraction, epsilons)))


def test_losses_of_a_kind_add_up_and_compare():
    assert ApproxDP("0.1") + ApproxDP("0.2", "1e-6") == ApproxDP("0.3", "1e-6")
    assert ZCDP("0.1") + ZCDP("0.1", "1e-9") == ZCDP("0.2", "1e-9")
    assert curve(1, 2) + curve(3, 4) == curve(4, 6)
    assert ApproxDP(1, 0) <= ApproxDP(1, "0.1")
    assert not ApproxDP(2, 0) <= ApproxDP(1, 1)
    assert ZCDP(1) <= ZCDP(2)
    assert curve(1, 2) <= curve(1, 3)
    assert not curve(1, 4) <= curve(2, 3)
    assert ApproxDP(1, 1) + ApproxDP(1, 1) == ApproxDP(2, 1)  # δ is a probability


@pytest.mark.parametrize(
    "make",
    [
        lambda: ApproxDP(-1),
        lambda: ApproxDP(1, 2),
        lambda: ApproxDP(1, -1),
        lambda: ApproxDP("x"),
        lambda: ZCDP(-1),
        lambda: curve(1),
        lambda: curve(-1, 1),
        lambda: curve(1, 2, orders=(3, 2)),
        lambda: curve(1, 2, orders=(1, 2)),
        lambda: RenyiDP((), ()),
        lambda: curve(1, 2) + curve(1, 2, orders=(2, 4)),
        lambda: curve(1, 2) <= curve(1, 2, orders=(2, 4)),
        lambda: L1(-1),
        lambda: L2(squared="-1/2"),
        lambda: GeometricEvent(scale=0, sensitivity=L1(1)),
        lambda: ExponentialEvent(epsilon=-1),
        lambda: DeclaredEvent(epsilon=-1),
        lambda: DeclaredEvent(epsilon=1, delta=2),
        lambda: Repeated(event=EVENT, count=0),
        lambda: Repeated(event=EVENT, count=True),
        lambda: PoissonSampled(event=EVENT, probability=2),
        lambda: Sequential(events=(1,)),
        lambda: Parallel(events=["geometric"]),
    ],
)
def test_what_is_no_loss_distance_or_event_is_refused(make):
    with pytest.raises(SpecError):
        make()


USUAL = {Fraction: "1/2", int: 2, L1: L1(1), L2: L2(squared=1), LInf1: LInf1(1), Event: EVENT}
NUMBERS = [
    (kind, field.name)
    for kind in EVENTS.values()
    for field in fields(kind)
    if field.type in (Fraction, int)
]


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
def test_no_number_of_an_event_is_negative_or_none(kind, name):
    """A scale of -1 would be a negative price, a count of 0 none."""
    usual = {each.name: USUAL[each.type] for each in fields(kind)} | {"scale": 9, "epsilon": 1}
    made = kind(**{each.name: usual[each.name] for each in fields(kind)})
    assert type(getattr(made, name)) in (Fraction, int)
    for wrong in (-1, "x", None):
        with pytest.raises(SpecError):
            kind(**{each.name: usual[each.name] for each in fields(kind)} | {name: wrong})


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (ApproxDP("0.1"), "ε = 0.1"),
        (ApproxDP("1/3"), "ε = 0.333334"),
        (ApproxDP(1, "1e-6"), "(ε = 1, δ = 1e-6)"),
        (ApproxDP("123456.789012"), "ε = 123456.78902"),
        (ApproxDP(1, Fraction(1, 10**400)), "(ε = 1, δ = 1e-400)"),
        (ZCDP("0.005"), "ρ = 0.005 (zCDP)"),
        (ZCDP("0.005", "1e-9"), "(ρ = 0.005, δ = 1e-9) (zCDP)"),
    ],
)
def test_a_loss_is_shown_rounded_up(loss, text):
    assert str(loss) == text


def test_a_balance_is_shown_rounded_down():
    assert f"{ApproxDP('1/3', '2/3'):left}" == "(ε = 0.333333, δ = 0.666666)"
    assert float(ApproxDP("1/2")) == 0.5


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"event": "unheard/1"},
        {"event": "geometric/1", "scale": "1"},
        {"event": "geometric/1", "scale": 1.5, "sensitivity": "1"},
        {"event": "geometric/1", "scale": "0", "sensitivity": "1"},
        {"event": "geometric/1", "scale": "1/0", "sensitivity": "1"},
        {"event": "geometric/1", "scale": "1", "sensitivity": "1", "seed": "7"},
        {"event": "sequential/1", "events": "nothing/1"},
        {"event": "repeated/1", "of": "geometric/1", "count": "2"},
    ],
)
def test_a_damaged_record_is_no_event(record):
    with pytest.raises(LedgerError):
        decode(record)


def test_an_event_inside_another_keeps_its_kind():
    event = Repeated(event=PoissonSampled(event=EVENT, probability="1/10"), count=3)
    assert decode(encode(event)) == event
    assert encode(event)["of"]["of"]["event"] == "geometric/1"


def test_a_release_comes_back_as_it_was_stored():
    release = Release(values=np.array([-3, 2**62]), event=EVENT, question="q", request_id="r")
    again = Release.from_bytes(release.to_bytes(), question="q", request_id="r", free=True)
    assert again.values.tolist() == [-3, 2**62]
    assert again.event == EVENT


def test_a_release_keeps_its_shape_and_the_kinds_of_its_keys():
    moment = datetime(2020, 5, 17, 12, 30, 0, 7)  # noqa: DTZ001 - times in tables have no zone
    keys = (("a", 1, None), (date(2020, 5, 17), moment, True))
    release = Release(
        values=np.array([[1, 2], [3, 4]]), event=EVENT, question="q", request_id="r", keys=keys
    )
    again = Release.from_bytes(release.to_bytes(), question="q", request_id="r", free=True)
    assert again.values.tolist() == [[1, 2], [3, 4]]
    assert again.keys == keys
    assert [type(value) for value in again.keys[1]] == [date, datetime, bool]


@pytest.mark.parametrize(
    "stored",
    [b"", b"[]", b"{}", b'{"values": [1]}', b"\xff", b'{"values": "x", "event": {}}',
     b'{"event":{"event":"nothing/1"},"keys":[[{"date":"x"}]],"values":[1]}',
     b'{"event":{"event":"nothing/1"},"keys":[[{}]],"values":[1]}'],
)  # fmt: skip
def test_a_damaged_release_is_a_ledger_error(stored):
    with pytest.raises(LedgerError):
        Release.from_bytes(stored, question="q", request_id="r", free=True)


def test_a_unit_says_what_was_declared():
    assert "every row is one person" in str(PrivacyUnit(column=None))
    assert "household" in str(PrivacyUnit(column="home", noun="household"))
