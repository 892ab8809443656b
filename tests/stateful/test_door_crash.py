"""Kill the door at every statement of its ledger: what was revealed is always paid for."""

import signal
import subprocess
import sys
from pathlib import Path

# imports once, then forks a door for each statement at which it is killed
CHILD = """
import itertools, os, signal, sys
sys.path.insert(0, {unit!r})
import door
from noisegate.ledger.stores import sqlite

connect = sqlite.sqlite3.connect

def tell(where, left):
    def step(_):
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(*words, **more):
        connection = connect(*words, **more)
        connection.set_trace_callback(step)
        return connection

    sqlite.sqlite3.connect = watched
    here = door.curator(where)
    with open(where + ".revealed", "w") as world:
        for epsilon in ("0.25", "0.5"):
            release = here.measure(door.counting(epsilon))
            print(epsilon, release.values[0, 0], file=world, flush=True)

for step in itertools.count(1, 4):
    where = os.path.join(sys.argv[1], f"ledger{{step}}")
    child = os.fork()
    if child == 0:
        tell(where, step)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(where, code, flush=True)
    if code != -signal.SIGKILL:
        break
"""


def test_a_door_killed_at_any_statement_has_charged_what_it_revealed(tmp_path):
    unit = Path(__file__).parents[1] / "unit"
    sys.path.insert(0, str(unit))
    import door

    script = tmp_path / "child.py"
    script.write_text(CHILD.format(unit=str(unit)))
    doors = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, check=True
    )
    ends = [line.rsplit(" ", 1) for line in doors.stdout.splitlines()]
    assert ends[-1][1] == "0", doors.stderr
    assert {code for _, code in ends[:-1]} == {str(-signal.SIGKILL)}
    assert len(ends) > 6
    for where in (Path(where) for where, _ in ends):
        seen = where.with_suffix(".revealed")
        revealed = dict(map(str.split, seen.read_text().splitlines())) if seen.exists() else {}
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
    assert set(revealed) == {"0.25", "0.5"}
