"""The examples of the documentation, run against a gate here and against one over the network."""

import json
import re
import shutil
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from served import QUICK, serving

import noisegate
from noisegate.server.service import Service

ROOT = Path(__file__).parents[2]
HERE = noisegate.open


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The examples, with budgets for a whole page."""
    for file in (ROOT / "examples").iterdir():
        if file.is_dir():
            shutil.copytree(file, tmp_path / file.name)
        elif file.suffix in (".csv", ".toml"):
            shutil.copy(file, tmp_path)
    policy = tmp_path / "clinic.toml"
    text = (
        policy.read_text().replace("epsilon = 4", "epsilon = 1000").replace("ana = 2", "ana = 900")
    )
    policy.write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=["here", "served"])
def opening(request, folder, monkeypatch):
    """``noisegate.open`` as it is; or the same rows behind a service, with a gate that connects."""
    open_ones = {}
    with ExitStack() as stack:
        if request.param == "served":

            def opened(source, *, analyst="ana", practice=False, **facts):
                file = Path(source)
                policy = file if file.suffix == ".toml" else written(file, **facts)
                if policy not in open_ones:
                    service = stack.enter_context(closing(Service([policy], settings=QUICK)))
                    service.people.add(analyst, "analyst")
                    open_ones[policy] = stack.enter_context(serving(service))
                found = open_ones[policy]
                return noisegate.connect(found.url, token=found.tokens[analyst], practice=practice)

            monkeypatch.setattr(noisegate, "open", opened, raising=False)
        yield noisegate.open
        assert request.param == "here" or noisegate.open is not HERE


def written(file, *, epsilon, columns, delta=0):
    """The policy that says what was said to `noisegate.open`."""
    lines = [f'name = "{file.stem}"', "[budget]", f"epsilon = {epsilon}"]
    lines += [f"delta = {delta:.9f}"] if delta else []
    lines += [f"[tables.{file.stem}]", f'source = "{file.name}"', "every_row_is_one_person = true"]
    lines += [f"[tables.{file.stem}.columns]"]
    for name, facts in columns.items():
        terms = ", ".join(f"{term} = {json.dumps(value)}" for term, value in facts.items())
        lines.append(f"{name} = {{ {terms} }}")
    policy = file.with_suffix(".policy.toml")
    policy.write_text("\n".join(lines))
    return policy


def test_the_python_of_the_sql_page(opening):
    (block,) = blocks("docs/sql.md", "python")
    scope = {}
    exec(block, scope)
    assert scope["answer"].columns == ("ward", "year", "patients", "mean")
    assert scope["plan"].fits
    assert scope["answer"].practice


def test_the_python_of_the_releases_page(opening, capsys):
    (block,) = blocks("docs/releases.md", "python")
    scope = {}
    exec(block, scope)
    assert scope["again"].values.tolist() == scope["release"].values.tolist()
    assert scope["gate"].spent.epsilon == 0.5
    assert scope["release"].cost.epsilon == 0.5
    assert "±" in capsys.readouterr().out


# what `tests/house` runs against a gate here

served_alone = pytest.mark.parametrize("opening", ["served"], indirect=True)


@served_alone
def test_the_python_of_the_page_about_choices(opening):
    block = blocks("docs/choice.md", "python")[0]
    scope = {}
    exec(block, scope)
    assert scope["choice"].winner in ("north", "south", "west")
    assert scope["again"].free
    assert scope["again"].winners == scope["choice"].winners


@served_alone
def test_the_python_of_the_page_on_robust_numbers(opening, capsys):
    scope, (numbers, _, graphs, *_) = {}, blocks("docs/robust.md", "python")
    for block in (numbers, "\n".join(graphs.splitlines()[:4])):  # of graphs, the first number
        exec(block, scope)
    assert 0 <= scope["median"].rows[0][0] <= 109
    assert len(scope["by_ward"].rows) == 3
    assert abs(scope["edges"].rows[0][0] - 307) <= 30  # e^-30
    assert scope["friends"].vertices == 60
    assert "not released" in capsys.readouterr().out


@served_alone
def test_the_python_of_the_page_on_synthetic_rows(opening, folder, capsys):
    scope = {}
    exec(blocks("docs/synthetic.md", "python")[0], scope)
    assert scope["again"].to_arrow().num_rows == 1000
    assert (folder / "report.html").read_text().count("<svg") == 2
    assert scope["made"].cost.epsilon == 1


@served_alone
def test_the_questions_of_the_sql_page(opening):
    """Some of them: each takes a while. All are asked of a gate here in `tests/house`."""
    asked = [sql for block in blocks("docs/sql.md", "sql") for sql in block.split(";\n")]
    gate = opening("clinic.toml", analyst="ana")
    for sql in asked[::12]:
        plan, answer = gate.plan(sql), gate.sql(sql)
        assert answer.columns, sql
        assert answer.cost == plan.price
    assert gate.spent.epsilon > 0
