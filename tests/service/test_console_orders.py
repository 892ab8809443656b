"""Orders of every kind from forms that the schema writes; their pages, pictures and files."""

import html
import json
import re
from datetime import date

import pyarrow as pa
import pytest
from browser import HOME, Browser, clinic_service, words

from noisegate.orders import KINDS, RELEASES, order_from
from noisegate.server.console.forms import kinds, record, said_by

ORDERS = {
    "histogram": {"table": "patients", "column 0": "birth_year", "by 0": "10"},
    "map": {"table": "visits", "column 0": "cost", "by 0": "100", "column 1": "day",
            "by 1": "quarter"},
    "series": {"table": "visits", "column 0": "day", "by 0": "week"},
    "marginals": {"table": "patients", "column 0": "birth_year", "by 0": "20", "column 1": "sex"},
    "cube": {"table": "visits", "column 0": "ward", "column 1": "cost", "by 1": "200", "sets": "1"},
    "sparse": {"table": "visits", "column 0": "day", "column 1": "ward"},
    "cdf": {"table": "visits", "column 0": "cost", "by 0": "0:10:20:800"},
    "boxplot": {"table": "visits", "column 0": "cost", "column 1": "ward"},
    "describe": {"table": "patients", "columns sex": "1"},
    "smooth": {"sql": "SELECT MEDIAN(cost) FROM visits", "delta": "1e-9"},
    "synthetic": {"table": "patients", "column 0": "birth_year", "by 0": "10", "column 1": "sex"},
    "choose": {"sql": "SELECT ward, COUNT(*) FROM visits GROUP BY ward", "gap": "yes"},
    "statistic": {"table": "patients", "expressions": "birth_year > 1980\nsex = 'f'"},
    "caps": {"table": "visits"},
}  # fmt: skip
FIT = {"table": "visits", "model": "KMeans", "columns cost": "1"}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = clinic_service(tmp_path_factory.mktemp("orders"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def ana(service):
    return Browser(service).sign_in(service, "ana")


def filled(kind, **more):
    return (
        {"kind": kind, "epsilon": "0.2", "data": "clinic", "key": "k"}
        | ORDERS.get(kind, FIT)
        | more
    )


def number(value):
    """A date as a number of days."""
    return value.toordinal() if isinstance(value, date) else value


@pytest.mark.parametrize("column", ["cost", "day"])
def test_box_plots_are_drawn_as_boxes_of_the_released_numbers(ana, service, column):
    """On one scale: whiskers, quartiles and median stand where the answer has them."""
    said = {"do": "ask", "key": f"boxes of {column}", "epsilon": "0.4", "column 0": column}
    page = ana.submit("order", filled("boxplot", **said), home="order")
    found = re.search(r'<figure class="chart boxes">.*?</figure>', page.text, re.DOTALL)
    assert found is not None, words(page)
    figure = found[0]
    name = re.search(r"/runs/(\w{32})|run=(\w{32})|orders?/(\w{32})", page.text + str(page.url))
    assert name is not None
    told = service.held(next(filter(None, name.groups()))).result().made
    found = [(b.low, b.lower, b.middle, b.upper, b.high) for b in told.boxes]
    boxes = [tuple(map(number, five)) for five in found]
    widths = told.held.margins(0.95)["middle"] or [0] * len(boxes)
    spread = [e for b, w in zip(boxes, widths, strict=True) for e in (*b, b[2] - w, b[2] + w)]
    low, high = min(spread), max(spread)
    middles = [float(each) for each in re.findall(r'class="middle" x1="([\d.]+)%', figure)]
    assert middles == [pytest.approx(100 * (b[2] - low) / (high - low), abs=0.01) for b in boxes]
    starts = [float(each) for each in re.findall(r'<rect x="([\d.]+)%', figure)]
    assert starts == [pytest.approx(100 * (b[1] - low) / (high - low), abs=0.01) for b in boxes]
    assert figure.count("<rect") == len(boxes) == 4
    assert "whiskers at 5% and 95% of the rows" in figure


def test_every_kind_of_order_has_a_form(ana):
    listed = ana.page("order").text
    assert kinds().keys() >= RELEASES.keys() | (KINDS.keys() - {"sql", "many"})
    for kind in kinds():
        assert f"kind={kind}&" in html.unescape(listed)
        form = ana.page(f"order?kind={kind}").text
        assert f'name="kind" value="{kind}"' in form
    ana.page("order?kind=many", 404)
    ana.page("order?kind=%3Cscript%3E", 404)


@pytest.mark.parametrize("kind", ORDERS)
def test_a_form_is_priced_for_nothing_and_says_its_order_again(ana, service, kind):
    spent = service.view(service.people.caller_of("ana"), "clinic").gate.spent
    said = ana.submit("order/price", filled(kind), home="order")
    assert said.status_code == 200, said.json()
    assert "ε = 0.2" in said.json()["html"]
    order = order_from(record(kind, filled(kind)))
    again = said_by(kind, order.to_dict())
    assert order_from(record(kind, again)) == order
    assert service.view(service.people.caller_of("ana"), "clinic").gate.spent == spent


def test_a_release_is_practised_paid_drawn_and_loaded_as_files(ana, service):
    practised = ana.submit("order", filled("map", do="practise"), home="order")
    assert "Practice." in words(practised)
    paid = ana.submit("order", filled("map", do="ask"), home="order")
    assert re.search(r"darker is more\. Each is ± [\d,.]+ to [\d,.]+\.", words(paid))
    assert paid.text.count("<rect") > 60
    run = re.search(r"runs/(\w+)", str(paid.url))[1]
    assert "Change the order" in words(paid)
    form = ana.page(f"order?run={run}").text
    assert re.search(r'value="cost" selected.*?name="by 0" value="100"', form, re.DOTALL)
    for each in ("csv", "json", "arrow", "parquet", "card", "card.json"):
        assert ana.page(f"runs/{run}/{each}").content
    with pa.ipc.open_stream(ana.page(f"runs/{run}/arrow").content) as stream:
        assert (
            stream.read_all().num_rows == json.loads(ana.page(f"runs/{run}/card.json").text)["rows"]
        )
    assert ">map<" in ana.page("releases").text


def test_what_is_drawn_along_time_is_a_line_and_what_is_no_table_is_words(ana):
    drawn = ana.submit("order", filled("series", do="practise", **{"by 0": "day"}), home="order")
    assert "the band is ±" in words(drawn)
    assert "<polyline" in drawn.text
    means = words(ana.submit("order", filled("statistic", do="practise"), home="order"))
    assert "names values margins birth_year > 1980" in means
    chosen = words(ana.submit("order", filled("choose", do="practise"), home="order"))
    assert "guarantee ε = 0.2 for adding or removing one patient" in chosen


@pytest.mark.parametrize(
    ("kind", "wrong", "said"),
    [
        ("histogram", {"column 0": "none"}, "none"),
        ("histogram", {"epsilon": "x"}, "epsilon"),
        ("histogram", {"table": "<script>"}, "&lt;script&gt;"),
        ("fit", {"options": "{broken"}, "JSON"),
        ("cube", {"sets": "[[1]"}, "JSON"),
        ("choose", {"method": "nonsense"}, "nonsense"),
        ("caps", {"epsilon": ""}, "epsilon"),
    ],
)
def test_a_form_that_cannot_be_ordered_says_why_and_keeps_what_was_typed(ana, kind, wrong, said):
    fields = filled(kind, do="ask", **wrong)
    live = ana.submit("order/price", fields, home="order")
    reply = ana.submit("order", fields, home="order")
    for status, text in ((live.status_code, live.json()["html"]), (reply.status_code, reply.text)):
        assert 400 <= status < 500
        assert 'role="alert"' in text
        assert said in text
        assert "<script>" not in text.partition("<main")[2]
    assert f'name="kind" value="{kind}"' in reply.text


def test_orders_are_for_analysts_and_their_forms_are_guarded(ana, service):
    sam = Browser(service).sign_in(service, "sam")
    sam.page("order", 404)
    assert sam.submit("order", filled("histogram", do="ask")).status_code == 404
    for wrong in ({"form": "x"}, {"origin": "http://evil.example"}, {"origin": None}):
        assert ana.submit("order", filled("histogram", do="ask"), **wrong).status_code == 403
    assert ana.get(f"{HOME}/order/price").status_code in (404, 405)
