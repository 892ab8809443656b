import pytest

from door import FINE, ROWS, Watched, count_query, counting, curator, domain
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.errors import (
    InsecureBits,
    OverBudget,
    PolicyError,
    RequestConflict,
    SourceError,
    Unsupported,
)
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.noise.bits import Bits, SystemBits
from noisegate.privacy.event import DiscreteGaussianEvent, GeometricEvent
from refusals import about


class ScriptedBits(Bits):
    def words(self, count, width):
        return SystemBits().words(count, width)


def test_an_answer_is_near_the_truth_and_paid_for():
    door = curator()
    release = door.measure(counting("0.5"))
    assert abs(int(release.values[0, 0]) - ROWS.num_rows) < 200  # fails once in e^100 runs
    assert str(door.ledger.balance("clinic").spent) == "ε = 0.5"
    assert release.event == GeometricEvent(scale=2, sensitivity=count_query().l1s[0])
    assert not release.free


def test_a_repeated_question_spends_and_reads_once():
    source = Watched()
    door = curator(source=source)
    first, second = door.measure(counting("0.5")), door.measure(counting("0.5"))
    assert second.free
    assert (second.values == first.values).all()
    assert source.reads == 1
    assert str(door.ledger.balance("clinic").spent) == "ε = 0.5"


def test_a_fresh_id_draws_and_pays_anew_until_the_budget_ends():
    source = Watched()
    door = curator(source=source)
    for _ in range(2):
        door.measure(counting("0.5"), request_id=door.fresh_id())
    with pytest.raises(OverBudget):
        door.measure(counting("0.5"), request_id=door.fresh_id())
    assert source.reads == 2


def test_over_budget_reads_no_row_and_spends_nothing():
    source = Watched()
    door = curator(source=source)
    with pytest.raises(OverBudget):
        door.measure(counting("1.1"))
    assert source.reads == 0
    assert str(door.ledger.balance("clinic").spent) == "ε = 0"


def test_ten_tenths_fit_into_one():
    door = curator()
    for _ in range(10):
        door.measure(counting("0.1"), request_id=door.fresh_id())
    assert str(door.remaining()) == "ε = 0"


def test_a_broken_source_stays_charged_and_the_request_can_be_run_again(tmp_path):
    source = Watched()
    source.broken = SourceError("The engine is away.", fix="Wait.")
    door = curator(tmp_path / "l", source=source)
    with pytest.raises(SourceError):
        door.measure(counting("0.5"))
    assert str(door.ledger.balance("clinic").spent) == "ε = 0.5"
    source.broken = None
    assert not door.measure(counting("0.5")).free
    assert str(door.ledger.balance("clinic").spent) == "ε = 0.5"
    assert door.ledger.verify().ok


def test_a_request_id_belongs_to_one_question():
    door = curator()
    door.measure(counting("0.25"), request_id="r1")
    with pytest.raises(RequestConflict):
        door.measure(counting("0.5"), request_id="r1")
    assert str(door.ledger.balance("clinic").spent) == "ε = 0.25"


def test_answers_outlive_the_process(tmp_path):
    first = curator(tmp_path / "l").measure(counting("0.5"))
    source = Watched()
    again = curator(tmp_path / "l", source=source).measure(counting("0.5"))
    assert (again.values == first.values).all()
    assert again.free
    assert source.reads == 0


def test_another_data_set_or_snapshot_is_another_question(tmp_path):
    curator(tmp_path / "l").measure(counting("0.5"))
    other = domain(dataset="school")
    assert not curator(tmp_path / "l", table=other).measure(counting("0.5", other)).free
    later = domain(snapshot="2")
    assert not curator(tmp_path / "l", table=later).measure(counting("0.5", later)).free


def test_a_durable_ledger_refuses_bits_that_are_not_the_systems(tmp_path):
    with pytest.raises(InsecureBits):
        curator(tmp_path / "l", bits=ScriptedBits())
    curator(bits=ScriptedBits())  # practice in memory is fine


def test_a_question_about_another_table_is_refused():
    door = curator()
    with pytest.raises(Unsupported, check=about("table")):
        door.measure(counting("0.5", domain(dataset="school")))
    with pytest.raises(Unsupported, check=about("table")):
        door.find(counting("0.5", domain(unit="id"), cap=9))
    with pytest.raises(Unsupported, check=about("table")):
        door.measure(counting("0.5", domain(name="elsewhere")), request_id="mine")


def test_the_event_has_the_sensitivity_of_the_query_in_the_norm_of_the_noise():
    query = count_query(domain(unit="id"), cap=3)
    gaussian = Measurement(query=query, mechanisms=(DiscreteGaussian(variance=8),))
    assert gaussian.event() == DiscreteGaussianEvent(variance=8, sensitivity=query.l2s[0])
    assert query.l2s[0].squared == 9


def test_a_capped_unit_pays_for_all_its_rows():
    table = domain(unit="id")
    door = curator(table=table)
    release = door.measure(counting("0.5", table, cap=10))
    assert release.event.scale == 20
    assert abs(int(release.values[0, 0]) - 30) < 2000  # three ids, ten rows each


def test_a_count_per_key_is_paid_by_the_rows_of_a_unit_over_all_keys():
    table = domain(unit="id")
    door = curator(table=table, budget="1e6")
    release = door.measure(counting("512000", table, by="ward", cap=10, term=FINE))
    # all that a unit adds is scaled to 10 rows, in 1024ths: ids 2 and 3 have 25 rows in the first
    # ward, id 1 has 25 in each of two
    # the noise has ε = 50 a step: an answer is off with probability below 4 e^-50
    assert release.values.tolist() == [[2 * 10240 + 5120, 5120, 0]]


def test_an_account_of_another_data_set_cannot_answer():
    door = curator()
    with pytest.raises(PolicyError, check=about("account")):
        Curator(
            source=Watched(), tables={"people": domain(dataset="school")}, ledger=door.ledger,
            account="clinic",
        )  # fmt: skip


def test_gaussian_answers_are_priced_by_zcdp():
    door = curator(budget=1, delta="1e-6", accountant="zcdp")
    query = count_query(by="ward")
    noise = (DiscreteGaussian(variance=800),)
    release = door.measure(Measurement(query=query, mechanisms=noise))
    assert release.values.shape == (1, 3)
    assert door.loss_of(release.event).delta > 0
    assert str(door.loss_of(counting("0.1").event())) == "ε = 0.1"  # whatever the account's measure
    assert 0 < float(door.ledger.balance("clinic").spent) < 1


def test_a_price_is_quoted_without_spending_or_reading():
    source = Watched()
    door = curator(source=source)
    assert [str(part) for part in door.price(counting("0.5").event())] == ["ε = 0.5", "True"]
    assert [str(part) for part in door.price(counting("1.5").event())] == ["ε = 1.5", "False"]
    assert source.reads == 0
    assert str(door.ledger.balance("clinic").spent) == "ε = 0"


def test_a_stored_answer_is_found_without_spending_or_reading():
    source = Watched()
    door = curator(source=source)
    assert door.find(counting("0.5")) is None
    first, found = door.measure(counting("0.5")), door.find(counting("0.5"))
    assert (found.values.tolist(), found.free) == (first.values.tolist(), True)
    assert source.reads == 1
    assert str(door.ledger.balance("clinic").spent) == "ε = 0.5"


def test_only_public_rows_leave_for_free():
    with pytest.raises(PolicyError, check=about("public")):
        curator().public("people")
