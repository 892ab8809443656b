"""What docs/crowd.md shows runs, and costs what it says."""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_examples_about_crowds_and_samples_run(tmp_path, monkeypatch, capsys):
    shutil.copy(ROOT / "examples" / "people.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    scope = {}
    for block in re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/crowd.md").read_text(), re.DOTALL
    ):
        exec(block, scope)
    assert "a crowd of" in capsys.readouterr().out
    assert 3.5 < scope["gate"].spent.epsilon <= 4  # 2 crowds, points, and 0.1 + 0.2 + 0.2 + 0.5
    assert scope["gate"].ledger.verify().ok
    made = scope["sample"].release("table", columns={"age": 10, "ward": None}, epsilon=0.2)
    assert made.free
