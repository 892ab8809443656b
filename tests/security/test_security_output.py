"""What leaves for a screen, a page, a picture or a sheet is only seen: no text in it does anything.

Keys come from rows, names from files, SQL from strangers: `nasty.STRINGS` are all of them here.
"""

import csv
import io
import json
import re
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt
from nasty import STRINGS

import noisegate as ng
from noisegate.cli import main
from noisegate.desk.display.plot import write
from noisegate.shell import run as run_shell
from noisegate.synthetic.report import Report

ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb"
    "\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
HARMLESS = [f"key{place}" for place in range(len(STRINGS))]
SQL = "SELECT k, COUNT(*) AS n FROM data GROUP BY k"


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def opened(keys, **terms):
    """A gate in front of rows with these keys, declared; without columns, to be found."""
    rows = pa.table({"k": list(keys) * 60, "x": [-5.0] * (60 * len(keys))})
    facts = {"k": {"in": list(keys)}, "x": {"between": [-9, 0]}}
    return ng.open(rows, epsilon=1000, delta="1e-3", **{"columns": facts, **terms})


@pytest.fixture(scope="module")
def gate():
    return opened(STRINGS)


@pytest.fixture(scope="module")
def answer(gate):
    return gate.sql(SQL, epsilon=10)


@pytest.fixture(scope="module")
def found():
    """Keys that nobody declared: they came from rows."""
    return opened(STRINGS, columns=None).sql(SQL, epsilon=20, delta="1e-4")


@pytest.fixture(scope="module")
def titled(gate):
    """A column whose name holds all of them, one after the other."""
    return gate.sql(f"SELECT COUNT(*) AS {quoted(' '.join(STRINGS))} FROM data", epsilon=1)


@pytest.fixture(scope="module")
def harmless():
    return opened(HARMLESS).sql(SQL, epsilon=10)


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the texts of its scripts."""

    def __init__(self, page):
        super().__init__()
        self.found, self.scripts = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, tuple(sorted(name for name, _ in attrs))))

    def handle_comment(self, data):
        self.found.append(("comment", data))

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts.append(data)


def assert_same_elements(page, other):
    """Nothing is in the page that is not in the one of harmless keys."""
    assert set(Elements(page).found) <= set(Elements(other).found)


def test_a_page_with_raw_keys_would_not_pass():
    """The check itself: a naive page is caught."""
    with pytest.raises(AssertionError):
        assert_same_elements(f"<td>{STRINGS[0]}</td>", "<td>x</td>")


# pages


def test_tables_in_notebooks_hold_no_element_of_a_key(answer, found, titled, harmless):
    for each in (answer, found, titled):
        assert_same_elements(each._repr_html_(), harmless._repr_html_() + "<br>")
        assert_same_elements(each.plan._repr_html_(), harmless.plan._repr_html_())
        assert not ACTIVE.search(each._repr_html_() + each.plan._repr_html_())


def test_no_key_ends_the_script_of_a_chart(answer, titled, harmless, tmp_path):
    plain = harmless.plot().to_html()
    for each in (answer, titled):
        chart = each.plot(title=" ".join(STRINGS))
        page = chart.to_html()  # altair's own, as notebooks show it
        assert_same_elements(page, plain)
        (spec,) = [text for text in Elements(page).scripts if "$schema" in text]
        assert not re.search(r"</?script|<!--", spec, re.IGNORECASE)
        assert not ACTIVE.search(json.dumps(chart.to_dict(), ensure_ascii=False))
    write(answer.plot(), tmp_path / "x.html")
    saved = (tmp_path / "x.html").read_text()
    own = saved.rpartition("<body>")[2]  # without the library
    assert [tag for tag, _ in Elements(own).found] == ["div", "script"]
    assert "default-src 'none'" in saved.split("<script")[0]  # a page that asks nobody


def test_a_control_in_a_key_does_not_end_the_process_that_draws(tmp_path):
    """Before, the library that draws aborted it, after the charge."""
    unseen = [each for each in STRINGS if ACTIVE.search(each) or "<" in each]
    chart = opened(unseen).sql(SQL, epsilon=10).plot()
    for name in ("x.svg", "x.png"):
        write(chart, tmp_path / name)
    tags = {each.tag.rpartition("}")[2] for each in ET.parse(tmp_path / "x.svg").iter()}
    assert tags <= {"svg", "g", "path", "text", "tspan", "rect", "line", "defs", "style"}
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_pages_of_releases_and_reports_hold_no_element_of_a_key(gate):
    few = opened(HARMLESS)
    for name in ("histogram", "sparse", "crowd-histogram", "synthetic"):
        terms = {"columns": {"k": None}} if name != "synthetic" else {}
        if name == "crowd-histogram":
            terms |= {"probability": "1/2", "delta": "1e-7"}
        made, plain = (each.release(name, epsilon=20, **terms) for each in (gate, few))
        assert_same_elements(made._repr_html_(), plain._repr_html_())
        assert not ACTIVE.search(str(made) + repr(made) + made.to_json())
        if name == "synthetic":
            report = made.report()
            assert isinstance(report, Report)
            page, tags = report.to_html(), {"script", "img", "iframe", "b", "comment", "textarea"}
            assert not tags & {tag for tag, _ in Elements(page).found}
            assert not [
                each for _, names in Elements(page).found for each in names if each[:2] == "on"
            ]
            assert not ACTIVE.search(page + str(report) + report.to_markdown())
            assert_plain_markdown(report.to_markdown(), plain.report().to_markdown())


# Markdown


def rendered(text):
    return set(Elements(MarkdownIt("commonmark").enable("table").render(text)).found)


def assert_plain_markdown(text, other):
    assert rendered(text) <= rendered(other)
    widths = {len(re.findall(r"(?<!\\)\|", row)) for row in text.split("\n") if row[:2] == "| "}
    assert widths <= {
        len(re.findall(r"(?<!\\)\|", row)) for row in other.split("\n") if row[:2] == "| "
    }


def test_cards_hold_no_element_of_a_name(answer, found, titled, harmless):
    plain = harmless.card().to_markdown() + "\n- x `y`\n"
    for each in (answer, found, titled):
        card = each.card()
        assert_plain_markdown(card.to_markdown(), plain)
        assert not ACTIVE.search(card.to_markdown() + card.to_json())
        assert ng.desk.card.Card.from_json(card.to_json()).record == card.record


def test_the_page_of_a_policy_holds_no_element_of_a_name(tmp_path, capsys, monkeypatch):
    keys = [each for each in STRINGS if "\x7f" not in each and "\x85" not in each]
    columns = "".join(
        f"{json.dumps(keys[at], ensure_ascii=False)} = {{in = {json.dumps(keys[at : at + 6], ensure_ascii=False)}}}\n"
        for at in range(0, len(keys), 6)
    )
    policy = f"""name = "clinic"
protects = "<b>person</b>"
source = "<i>x</i>|y"
[budget]
epsilon = 1
[tables.visits]
every_row_is_one_person = true
[tables.visits.columns]
"[x](y) <script>`*_x_*`|" = {{between = [0, 1]}}
{columns}"""
    file = tmp_path / "p.toml"
    file.write_text(policy)
    shown = command(capsys, monkeypatch, "policy", "show", file)
    assert shown.out, shown.err
    tags = {tag for tag, _ in rendered(shown.out)}
    assert tags <= {"h1", "h2", "p", "table", "thead", "tbody", "tr", "th", "td"}
    assert not ACTIVE.search(shown.out)


# terminals


def command(capsys, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["noisegate", *map(str, words)])
    with pytest.raises(SystemExit):
        main()
    return capsys.readouterr()


def test_no_terminal_obeys_a_key(tmp_path, capsys, monkeypatch):
    file = tmp_path / "data.parquet"
    name = "\x1b]0;x\x07[red]\x9b31m"
    pq.write_table(pa.table({"k": list(STRINGS) * 60, name: [1] * (60 * len(STRINGS))}), file)
    asked = [file, f"SELECT k, SUM({quoted(name)}) AS {quoted(name)} FROM data GROUP BY k"]
    budget = ["--budget", 100, "--delta", "1e-3", "--epsilon", 40, "--keys-delta", "1e-4"]
    bounds = ["--between", f"{name}=0,2"]
    for words in (
        ["plan", *asked, *budget, *bounds],
        ["ask", *asked, *budget, *bounds],
        ["ask", *asked, *budget, *bounds, "--json"],
        ["ask", *asked, *budget, *bounds, "--analyst", "[red]\x1b[1m", "--share", 50],
        ["ledger", "show", file, "--entries"],
        ["ledger", "show", f"\x1b[1m{file}"],
        ["ask", file, "SELECT \x1b[31m FROM data"],
        ["ask", file, "SELECT nothing\u202e FROM \x9bdata", "--epsilon", 1],
        ["ask", f"no\x1b[31m{file}", "SELECT 1"],
        ["\x1b[31m"],
        ["ask", file, "SELECT 1", "--no\x1bsuch"],
        ["ask", *asked, *budget, "--save", "x\x1b[31m.xyz"],
        ["ask", *asked, "--epsilon", "\x1b[31m"],
        ["explain-epsilon", "1", "--prior", "[red]\x1b"],
    ):
        shown = command(capsys, monkeypatch, *words)
        assert shown.out + shown.err, words
        assert "Traceback" not in shown.err, shown.err
        assert "bug: " not in shown.err, shown.err
        assert not ACTIVE.search(shown.out + shown.err), words
    asked = command(capsys, monkeypatch, "ask", *asked, *budget, *bounds, "--json")
    assert {row[0] for row in json.loads(asked.out)["rows"]} == set(STRINGS)


def test_no_terminal_obeys_a_key_in_python(answer, found, titled):
    for each in (answer, found, titled):
        assert not ACTIVE.search(str(each) + repr(each.plan) + str(each.plan) + each.to_json())
    assert json.loads(answer.to_json())["rows"] == [list(row) for row in answer.rows]


def test_an_error_shows_names_without_obeying_them():
    refusal = ng.NoisegateError("No \x1b[31m\u202e\n.", fix="\x9b")
    assert str(refusal) == r"No \x1b[31m\u202e\n. \x9b"


def test_the_prompt_shows_keys_without_obeying_them(gate):
    typed = iter(
        [f"{SQL};", f"\\plan {SQL}", "\\d data", "\\history", "\\\x1b[31m", "SELECT \x9b;"]
    )
    shown = []

    def read(_):
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    run_shell(gate, read=read, write=shown.append, epsilon="10")
    assert not ACTIVE.search("\n".join(shown))
    assert "[red]x[/red]" in "\n".join(shown)


# sheets


def texts_of(text):
    return [row[0] for row in csv.reader(io.StringIO(text, newline=""))]


def test_no_sheet_computes_a_key_and_all_are_read_back(gate, answer, tmp_path):
    file = tmp_path / "x.csv"
    sparse = gate.release("sparse", columns={"k": None}, epsilon=20)
    rows = gate.release("synthetic", epsilon=20)
    for made in (answer, sparse, rows):
        made.save(file) if hasattr(made, "save") else made.to_csv(file)
        shown = texts_of(file.read_bytes().decode())
        assert not [
            each for each in shown if re.match("[=+@\t\r\n\uff0b\uff0d\uff1d\uff20-]", each)
        ]
        back = ng.read_csv(file, {"k": pa.string()})
        kept = made.to_arrow()["k"].to_pylist()
        assert back["k"].to_pylist() == kept
        assert set(kept) <= set(STRINGS)
    assert pc.min(back["x"]).as_py() < 0  # a number is left alone


def test_negative_numbers_and_missing_values_stay_what_they_are(gate, tmp_path):
    told = gate.sql(
        "SELECT SUM(x) AS \"=s\", CAST(NULL AS VARCHAR) AS t, '' AS u FROM data", epsilon=5
    )
    file = tmp_path / "x.csv"
    head, line = told.to_csv(file).splitlines()
    assert head.startswith("'=s,")
    assert line.startswith("-")
    back = ng.read_csv(file, {"t": pa.string(), "u": pa.string()})
    assert back.column_names[0] == "=s"
    assert (back["t"].to_pylist(), back["u"].to_pylist()) == ([None], [""])
    assert back["=s"].to_pylist() == told.to_arrow()["=s"].to_pylist()


def test_parquet_holds_keys_as_they_are(answer, tmp_path):
    answer.to_parquet(tmp_path / "x.parquet")
    assert pq.read_table(tmp_path / "x.parquet")["k"].to_pylist() == [row[0] for row in answer.rows]


# names


@pytest.mark.parametrize("name", [*STRINGS, "\x00", "\ud800"], ids=ascii)
def test_a_name_is_used_or_refused_before_the_charge(name):
    """As a column, a table, an analyst: an answer that can be shown, or a refusal for nothing."""
    try:
        rows = pa.table({name: [1, 2, 3]})
    except UnicodeEncodeError:
        rows = pa.table({"x": [1, 2, 3]})
    for terms in ({"table": name, "analyst": name, "share": 5}, {}):
        try:
            gate = ng.open(rows, epsilon=100, **terms)
        except ng.NoisegateError:
            continue
        try:
            table = quoted(terms.get("table", "data"))
            told = gate.sql(
                f"SELECT COUNT({quoted(name)}) AS {quoted(name)} FROM {table}", epsilon=1
            )
        except ng.NoisegateError:
            assert gate.spent.epsilon == 0
            continue
        shown = [
            str(told),
            told._repr_html_(),
            told.to_json(),
            told.card().to_markdown(),
            repr(gate),
        ]
        assert not ACTIVE.search("".join([*shown, str(told.plan)]))
        told.to_csv()
        break
