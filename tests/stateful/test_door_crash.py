"""Kill the door at every statement of its ledger: what was revealed is always paid for."""

import signal
import subprocess
import sys
from pathlib import Path

CHILD = """
import os, signal, sys
sys.path.insert(0, {unit!r})
import door
from noisegate.ledger import sqlite

left = int(sys.argv[2])
def step(_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

connect = sqlite.sqlite3.connect
def watched(*words, **more):
    connection = connect(*words, **more)
    connection.set_trace_callback(step)
    return connection
sqlite.sqlite3.connect = watched

here = door.curator(sys.argv[1])
for epsilon in ("0.25", "0.5"):
    release = here.measure(door.counting(epsilon))
    print(epsilon, release.values[0, 0], flush=True)
"""


def test_a_door_killed_at_any_statement_has_charged_what_it_revealed(tmp_path):
    unit = Path(__file__).parents[1] / "unit"
    sys.path.insert(0, str(unit))
    import door

    script = tmp_path / "child.py"
    script.write_text(CHILD.format(unit=str(unit)))
    finished, kills = False, 0
    step = 1
    while not finished:
        where = tmp_path / f"ledger{step}"
        child = subprocess.run(
            [sys.executable, script, where, str(step)], capture_output=True, text=True, check=False
        )
        finished = child.returncode == 0
        assert finished or child.returncode == -signal.SIGKILL, child.stderr
        kills += not finished
        revealed = dict(line.split() for line in child.stdout.splitlines())
        if where.exists():
            again = door.curator(where)
            assert again.ledger.verify().ok
            assert float(again.ledger.balance("clinic").spent) >= sum(map(float, revealed))
            for epsilon, value in revealed.items():
                release = again.measure(door.counting(epsilon))
                assert (int(release.values[0, 0]), release.free) == (int(value), True)
            for epsilon in ("0.25", "0.5"):  # whatever was begun can be run to its end
                again.measure(door.counting(epsilon))
            assert str(again.ledger.balance("clinic").spent) == "ε = 0.75"
        step += 4
    assert kills > 5
