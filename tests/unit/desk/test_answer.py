"""What the analyst holds: values, error bars, files, and how it looks."""

import json
from datetime import date
from functools import partial
from html.parser import HTMLParser

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noisegate.desk.answer import Answer
from noisegate.desk.display.numbers import CHOSEN, rich_table
from noisegate.desk.display.plot import write
from noisegate.errors import SpecError, Unsupported
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from refusals import about

GUARANTEE = Guarantee(
    loss=ApproxDP("0.1"), unit=PrivacyUnit(column="patient"), scope="this answer about 'visits'"
)
TABLE = pa.table(
    {
        "ward": ["north", "a <b> & c", None],
        "n": [1234, 56, -2],
        "mean": [41.23456, 52.0, 0.5],
        "day": [date(2024, 1, 2)] * 3,
    }
)
WIDTHS = [None, (6, 6, 6), (0.5123, None, 12.0), None]


def answer(table=TABLE, widths=WIDTHS, **changes):
    terms = {
        "sql": "SELECT …",
        "table": table,
        "half_widths": lambda _: widths,
        "cost": ApproxDP("0.1"),
        "remaining": ApproxDP("0.9"),
        "guarantee": GUARANTEE,
        "plan": None,
        "questions": ("{}",),
        "caveats": ("At most 8 rows of one person count.",),
        "amounts": lambda: ("n",),
    }
    return Answer(**(terms | changes))


def test_values_come_by_column_and_by_row():
    found = answer()
    assert found.columns == ("ward", "n", "mean", "day")
    assert found.rows[0] == ("north", 1234, 41.23456, date(2024, 1, 2))
    assert found.to_arrow() is TABLE
    assert found.to_pandas()["n"].tolist() == [1234, 56, -2]
    assert found.to_polars()["n"].to_list() == [1234, 56, -2]
    assert found.margins()["n"] == (6, 6, 6)
    assert found.margins()["ward"] is None


def test_frames_carry_margins_when_asked():
    table = answer().to_arrow(0.95)
    assert table.column_names == ["ward", "n", "n_margin", "mean", "mean_margin", "day"]
    assert table["n_margin"].to_pylist() == [6, 6, 6]
    assert table["mean_margin"].to_pylist() == [0.5123, None, 12.0]
    assert list(answer().to_pandas("0.95").columns) == table.column_names


def test_json_has_the_promised_keys_and_plain_values(tmp_path):
    found = json.loads(answer().to_json(tmp_path / "a.json"))
    assert found == json.loads((tmp_path / "a.json").read_text())
    assert set(found) == {
        "columns", "rows", "margins", "confidence", "price", "price_delta", "remaining",
        "remaining_delta", "free", "guarantee", "caveats", "reused", "practice", "head",
        "within_noise", "noise_margins", "lower_bounds",
    }  # fmt: skip
    assert found["rows"][0] == ["north", 1234, 41.23456, "2024-01-02"]
    assert found["margins"] == [
        [None, 6, 0.5123, None],
        [None, 6, None, None],
        [None, 6, 12.0, None],
    ]
    assert (found["price"], found["remaining"], found["free"]) == (0.1, 0.9, False)
    assert found["confidence"] == 0.95
    assert answer().to_dict("0.9")["confidence"] == 0.9


def test_csv_has_margins_beside_their_numbers(tmp_path):
    text = answer().to_csv(tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == text
    assert text.splitlines()[:2] == [
        "ward,n,n_margin,mean,mean_margin,day",
        "north,1234,6,41.23456,0.5123,2024-01-02",
    ]


def test_parquet_carries_the_guarantee(tmp_path):
    answer().to_parquet(tmp_path / "a.parquet")
    found = pq.read_table(tmp_path / "a.parquet")
    assert found.num_rows == 3
    assert found.schema.metadata[b"noisegate.guarantee"].decode() == str(GUARANTEE)
    assert found.schema.metadata[b"noisegate.sql"] == "SELECT …".encode()


def test_cells_show_the_places_that_the_margin_leaves():
    assert answer().cells()[0] == ["north", "1,234 ± 6", "41.23 ± 0.52", "2024-01-02"]
    assert answer().cells()[1][2] == "52 ± ?"
    assert answer().cells()[2] == ["–", "-2 ± 6 ≈ 0", "0 ± 12", "2024-01-02"]


def test_the_footer_says_price_balance_and_caveats():
    paid, *caveats = answer().footer("0.999").split("\n")
    assert paid == (
        "price ε = 0.1 · left ε = 0.9 · ± at 99.9% confidence; ≈ 0: may be noise alone; "
        "± ?: no bound on the error is known"
    )
    assert caveats == ["At most 8 rows of one person count."]
    free = answer(cost=ApproxDP(0), widths=[None] * 4, caveats=())
    assert free.free
    assert free.footer() == "free: answered from the ledger · left ε = 0.9"
    assert str(free).splitlines()[0] == "ward\tn\tmean\tday"


class _Tags(HTMLParser):
    """Notices tags that are not closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in ("br", "rect", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("br", "rect", "path"):
            assert self.open.pop() == tag


def test_the_notebook_table_is_well_formed_and_escaped():
    html = answer()._repr_html_()
    tags = _Tags()
    tags.feed(html)
    assert tags.open == []
    assert "b" not in tags.seen  # what looks like a tag in a key is text
    assert "a &lt;b&gt; &amp; c" in html
    assert "1,234 ± 6" in html
    assert "ε = 0.9" in html
    assert tags.seen.count("svg") == 5  # one for each number with an error bar
    assert "svg" not in answer(TABLE.slice(0, 1), [None, (6,), None, None])._repr_html_()


def test_a_long_answer_is_cut_in_a_notebook_and_says_so():
    long = pa.table({"k": list(range(500)), "n": list(range(500))})
    html = answer(long, [None, (1,) * 500])._repr_html_()
    assert html.count("<tr>") == 201
    assert "300 more rows" in html


def test_numbers_end_below_each_other_on_a_terminal():
    table = rich_table(["ward", "n", "mean"], [["a ±", "1,234 ± 6", "–"], ["b", "5 ± 6", "–"]])
    assert [column.justify for column in table.columns] == ["left", "right", "right"]
    assert [column.justify for column in rich_table(["n"], []).columns] == ["left"]


def test_an_answer_without_rows_is_fine():
    empty = answer(TABLE.slice(0, 0), [None, (), (), None])
    assert empty.rows == ()
    assert empty.to_dict()["margins"] == []
    assert empty.cells() == []
    assert "<table" in empty._repr_html_()


# charts


def test_a_chart_without_altair_is_refused_with_the_way_out(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(Unsupported, match=r"\[plot\]"):
        answer().plot()


def test_bars_have_error_bars_and_words():
    pytest.importorskip("altair")
    spec = (
        answer(TABLE.select(["ward", "n"]), [None, (6, 6, 6)], sql="SELECT ward, COUNT(*)")
        .plot()
        .to_dict()
    )
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["bar", "errorbar"]
    points = next(iter(spec["datasets"].values())) if "datasets" in spec else spec["data"]["values"]
    assert points[0] == {"x": "north", "color": None, "y": 1234,
                         "off": 6, "low": 1228, "high": 1240}  # fmt: skip
    tips = [each["title"] for each in spec["layer"][0]["encoding"]["tooltip"]]
    assert tips == ["ward", "n", "±"]
    assert spec["title"]["text"] == ["SELECT ward, COUNT(*)"]
    assert "Price ε = 0.1" in spec["title"]["subtitle"][0]
    assert spec["layer"][0]["encoding"]["y"]["title"] == "n (± at 95% confidence)"


def test_error_bars_end_at_zero_where_no_exact_number_is_below():
    pytest.importorskip("altair")
    table = pa.table({"k": ["a", "b", "c"], "n": [4, -2, 40]})
    for unsigned, expected in [
        ((), [(-2, 10), (-8, 4), (34, 46)]),
        (("n",), [(0, 10), (-2, 4), (34, 46)]),
    ]:
        found = answer(table, [None, (6, 6, 6)], unsigned=partial(tuple, unsigned))
        points = next(iter(found.plot().to_dict()["datasets"].values()))
        assert [(each["low"], each["high"]) for each in points] == expected
        assert found.margins()["n"] == (6, 6, 6)
        assert found.cells()[0] == ["a", "4 ± 6 ≈ 0"]
        least = min(low for low, _ in expected)
        assert f"M{1 + 96 * (34 - least) / (46 - least):.1f} 6H97.0" in found._repr_html_()


def test_dates_and_numbers_give_lines():
    pytest.importorskip("altair")
    for keys in ([date(2024, 1, day) for day in (1, 2, 3)], [10, 20, 30]):
        table = pa.table({"k": keys, "n": [1, 2, 3]})
        marks = [
            layer["mark"]["type"]
            for layer in answer(table, [None, (1,) * 3]).plot().to_dict()["layer"]
        ]
        assert marks == ["errorbar", "line"]


def test_colours_have_the_order_of_their_keys_and_do_not_repeat():
    pytest.importorskip("altair")
    for colors, expected in [
        (["f", "m"], {"range"}),
        ([f"k{i}" for i in range(9)], {"scheme": "tableau20"}),
        ([10, 20, None], {"scheme": "viridis"}),
        ([date(2024, 1, 1), date(2024, 2, 1)], {"scheme": "viridis"}),
    ]:
        table = pa.table({"k": ["a"] * len(colors), "c": colors, "n": [1] * len(colors)})
        spec = answer(table, [None, None, (1,) * len(colors)]).plot().to_dict()
        scale = spec["layer"][0]["encoding"]["color"]["scale"]
        assert scale == expected if isinstance(expected, dict) else set(scale) == expected


def test_of_very_many_keys_the_largest_are_drawn():
    pytest.importorskip("altair")
    table = pa.table({"k": [f"k{i}" for i in range(300)], "n": [i * 7 % 300 for i in range(300)]})
    spec = answer(table, [None, (1,) * 300]).plot().to_dict()
    points = next(iter(spec["datasets"].values()))
    assert sorted(each["y"] for each in points) == list(range(240, 300))
    assert spec["layer"][0]["encoding"]["x"]["title"] == "k; the 60 largest of 300"
    assert points[0]["x"] == "k35"  # in the order of the answer


def test_practice_has_no_price_in_a_picture():
    pytest.importorskip("altair")
    (line,) = answer(practice=True).plot().to_dict()["title"]["subtitle"]
    assert line.startswith("Nothing was paid. Practice: ")


def test_a_page_with_a_chart_needs_no_network(tmp_path, packed, monkeypatch):
    """With the real scripts: all that draws is in the page, and nothing is fetched."""
    pytest.importorskip("vl_convert")
    monkeypatch.setattr("vl_convert.javascript_bundle", packed)
    write(answer().plot(), tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert len(page) > 500_000  # Vega, Vega-Lite and what embeds them
    assert "vegaEmbed(" in page
    assert "<script src=" not in page
    assert "<link" not in page


def test_a_picture_of_rows_that_noise_chose_says_so():
    pytest.importorskip("altair")
    for caveats, said in [((CHOSEN,), True), (("Capped.",), False)]:
        title = answer(caveats=caveats).plot().to_dict()["title"]
        assert ("may be extreme by its noise" in " ".join(title["subtitle"])) is said


def test_many_error_bars_along_a_line_are_a_band():
    pytest.importorskip("altair")
    table = pa.table({"k": list(range(61)), "n": [1] * 61})
    spec = answer(table, [None, (1,) * 61]).plot().to_dict()
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["area", "line"]


def test_a_second_key_is_a_colour_and_files_can_be_saved(tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    table = pa.table({"w": ["a", "b"] * 2, "sex": ["f", "f", "m", "m"], "n": [1, 2, 3, 4]})
    chart = answer(table, [None, None, (1,) * 4]).plot(title="Visits")
    assert chart.to_dict()["layer"][0]["encoding"]["color"]["title"] == "sex"
    write(chart, tmp_path / "x.PNG")
    write(chart, tmp_path / "x.svg")
    assert (tmp_path / "x.PNG").read_bytes().startswith(b"\x89PNG")
    assert "Visits" in (tmp_path / "x.svg").read_text()


def test_a_chart_of_nothing_or_of_unknown_columns_is_refused():
    pytest.importorskip("altair")
    with pytest.raises(SpecError, check=about("column"), match="'x'"):
        answer().plot(x="x")
    with pytest.raises(Unsupported, check=about("no-number")):
        answer(TABLE.select(["ward", "day"]), [None] * 2).plot()


def titles(spec):
    return [part["layer"][0]["encoding"]["y"]["title"] for part in spec["concat"]]


def test_each_column_with_error_bars_has_a_part_of_the_picture():
    pytest.importorskip("altair")
    table = TABLE.select(["ward", "n", "mean"])
    spec = answer(table, [None, (6, 6, 6), (0.5, None, 2)]).plot().to_dict()
    sure = "(± at 95% confidence)"
    assert titles(spec) == [f"n {sure}", f"mean {sure}"]
    for values, parts in [((1_000, 7), 2), ((100, 7), 1)]:
        one = pa.table({"n": [values[0]], "m": [values[1]]})
        spec = answer(one, [(6,), (1,)]).plot().to_dict()
        assert len(spec.get("concat", [spec])) == parts


def test_without_error_bars_the_last_number_is_drawn_and_says_nothing_of_them():
    pytest.importorskip("altair")
    table = pa.table({"ward": ["n", "s"], "median": [41.5, 40.0]})
    spec = answer(table, [None, None]).plot().to_dict()
    assert spec["layer"][0]["encoding"]["y"]["title"] == "median"
    spec = answer(table, [None, None], unfollowed=lambda: ("median",)).plot().to_dict()
    assert spec["layer"][0]["encoding"]["x"]["title"] == "ward"


def test_groups_of_rows_without_a_value_are_named_or_said_to_be_missing():
    pytest.importorskip("altair")
    named = pa.table({"ward": ["n", None], "sex": [None, "f"], "old": ["y", "y"], "n": [5, 4]})
    spec = answer(named, [None, None, None, (1, 1)]).plot().to_dict()
    points = next(iter(spec["datasets"].values()))
    assert [(each["x"], each["color"]) for each in points] == [
        ("n", "(none) · y"),
        ("(none)", "f · y"),
    ]
    dated = pa.table({"day": [date(2024, 1, 2), date(2024, 1, 3), None], "n": [5, 4, 1]})
    spec = answer(dated, [None, (1, 1, 1)]).plot().to_dict()
    points = next(iter(spec["datasets"].values()))
    assert [each["x"] for each in points] == ["2024-01-02T00:00:00", "2024-01-03T00:00:00"]
    assert spec["layer"][0]["encoding"]["x"]["title"] == "day; (none) is not drawn"
