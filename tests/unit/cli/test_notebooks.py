"""The notebooks run, and what they assert holds; their pages are there."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
made = importlib.util.spec_from_file_location("notebooks", DOCS / "notebooks.py")
notebooks = importlib.util.module_from_spec(made)
made.loader.exec_module(notebooks)
FEWER = {  # rows and trials: the cells are the same
    "city_map": {},
    "gallery": {"DRAW": False},
    "hospital": {"PATIENTS": 1_000},
    "payroll": {"PEOPLE": 5_000},
    "school_district": {"STUDENTS": 2_000},
    "theory": {"SIDE": 51},
    "web_logs": {"USERS": 2_000},
    "lab_differencing_and_averaging": {"TIMES": 2},
    "lab_linkage_and_membership": {"TIMES": 2},
    "lab_noise_and_side_channels": {"TIMES": 2},
    "lab_reconstruction": {"TIMES": 2},
    "lab_what_privacy_does_not_promise": {},
}


@pytest.mark.long
@pytest.mark.parametrize("file", notebooks.notebooks(), ids=lambda file: file.stem)
def test_a_notebook_runs_and_its_assertions_hold(file):
    """They fail by chance in fewer than one run in 1,000 together: each states its own rate."""
    ran, _ = notebooks.run(file, lambda thing: {"text/plain": repr(thing)}, **FEWER[file.stem])
    assert any("assert " in cell.text for cell in ran if cell.code)


@pytest.mark.parametrize("file", notebooks.notebooks(), ids=lambda file: file.stem)
def test_the_page_of_a_notebook_has_its_cells_and_pictures(file):
    text = (notebooks.PAGES / f"{file.stem}.md").read_text()
    for cell in notebooks.cells(file):
        assert cell.text in text, cell.text
    drawn = set(re.findall(r"!\[chart\]\(([^)]+)\)", text))
    assert drawn == {each.name for each in notebooks.PAGES.glob(f"{file.stem}-[0-9]*")}
    assert drawn


def test_a_page_shows_what_jupyter_would(tmp_path):
    file = tmp_path / "small.py"
    file.write_text(
        '# %% [markdown]\n# # A title\n# %% tags=["parameters"]\nN = 3\n'
        '# %%\nfrom noisegate.lab.ratios import laws\nprint("said")\nlaws("raw", epsilon=1)\n'
        '# %% tags=["hide"]\nN + 1\n# %%\nN;\n# %% tags=["refused"]\nlaws("magic", epsilon=1)\n'
    )
    ran, scope = notebooks.run(file, N=5)
    assert scope["N"] == 5
    files = notebooks.page("small", ran)
    text = files["small.md"].decode()
    assert files["small-1.svg"].startswith(b"<svg")
    for part in ("# A title", "```text\nsaid\n```", "![chart](small-1.svg)", "```text\n6\n```"):
        assert part in text
    assert "```text\nbad-parameter.mechanism: " in text
    assert text.count("<details") == 1
    assert "```text\n5" not in text
    made = json.loads(notebooks.ipynb(ran))["cells"]
    tags = [each["metadata"].get("tags", []) for each in made]
    assert tags == [[], ["parameters"], [], ["hide-input"], [], ["raises-exception"]]
    with pytest.raises(KeyError, match="has no parameter M"):
        notebooks.run(file, M=1)


def test_a_refusal_that_does_not_come_is_an_error(tmp_path):
    file = tmp_path / "small.py"
    file.write_text('# %% tags=["refused"]\nN = 3\n')
    with pytest.raises(AssertionError, match="not refused"):
        notebooks.run(file)
