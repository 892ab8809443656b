"""What a newcomer is told who makes a usual mistake: what is wrong, and what to write instead."""

import pytest
from command_line import run

from noisegate.cli.printing import as_options

TOLD = [
    (("ask", ".", "SELECT 1"), 4, "source: '.' is a folder.\n  Give a data file or a policy."),
    (("ask", "no.csv", "SELECT 1"), 4, "source: There is no file 'no.csv'.\n  Check the path."),
    (("ask", "x.txt", "SELECT 1"), 4, "source: 'x.txt' does not end in .csv, .tsv, .parquet, "),
    (("ask", "x.csv", "DROP TABLE x"), 2, "Only SELECT is answered, not DROP.\n  For example: SELECT "),
    (("ask", "x.csv", "SELECT COUNT(*) FROM x"), 2, "The question has no price.\n  Give epsilon, or within"),
    (
        ("ask", "x.csv", "SELECT COUNT(*) FROM x", "--relative", "0.1", "--within", "5"),
        2,
        "The question has two accuracies: within and relative.",
    ),
    (("ask", "x.csv", "SELECT COUNT(*) FROM x", "--epsilon", "0"), 2, "epsilon is 0.\n  Give epsilon a"),
    (("ask", "x.csv", "SELECT COUNT(*) FROM x", "--epsilon", "-1"), 2, "epsilon is -1.\n"),
    (("ask", "x.csv", "SELECT COUNT(*) FROM x", "--epsilon", "abc"), 2, "epsilon is 'abc'.\n"),
    (("ask", "x.csv", "SELECT COUNT(*) FROM x", "--epsilon", "9"), 3, "has ε = 1 left of ε = 1.\n"),
    (("ask", "x.csv", "SELECT COUNT(*) FROM y", "--epsilon", "1"), 2, "There is no table 'y'.\n"),
    (("ask", "x.csv", "SELECT SUM(b) FROM x", "--epsilon", "1"), 2, "There is no column 'b'.\n"),
    (("ask", "x.csv", "SELECT COUNT(*)\nFROM x WHERE aa > 1", "--epsilon", "1"), 2, "unsupported: Line 2, column 14: There is no column 'aa'.\n  There are: a."),
    (("ask", "x.csv", "SELECT SUM(a) FROM x", "--epsilon", "1"), 2, "or have bounds estimated for a share of ε: --choose bounds."),
    (("ask", "x.csv", "SELECT a, COUNT(*) FROM x GROUP BY a", "--epsilon", "1"), 2, "or give --keys-delta 1e-6 from an account that has δ."),
]  # fmt: skip


def test_the_command_line_names_its_own_options():
    told = as_options(
        'Give rows_per_unit=..., lower groups_per_unit, choose="caps", fresh=True, rows=50'
    )
    assert (
        told == "Give --rows-per-unit N, lower --groups-per-unit, --choose caps, --fresh, --rows 50"
    )
    declared = "rows_per_unit = 3 in the policy; epsilon=0.1 in OPTIONS; all rows are read"
    assert as_options(declared) == declared


@pytest.mark.parametrize(("words", "code", "told"), TOLD)
def test_a_mistake_is_named_with_what_to_write_instead(tmp_path, words, code, told):
    for name in ("x.csv", "x.txt"):
        (tmp_path / name).write_text("a\n1\n")
    done = run(*words, "--budget", "1", code=code, cwd=tmp_path)
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_word_that_is_no_head_raises_no_alarm_of_a_rollback(tmp_path):
    """Before, any typing mistake was taken for a ledger whose tail was cut off."""
    (tmp_path / "x.csv").write_text("a\n1\n")
    run("ask", "x.csv", "SELECT COUNT(*) FROM x", "--epsilon", "1", "--budget", "1", cwd=tmp_path)
    done = run("ledger", "verify", "x.csv", "--head", "foo", code=2, cwd=tmp_path)
    assert "This is not a ledger head." in done.stderr
    lost = run("ledger", "verify", "x.csv", "--head", "f" * 64, code=5, cwd=tmp_path)
    assert "its tail was cut off, or it was rewritten" in lost.stdout + lost.stderr
