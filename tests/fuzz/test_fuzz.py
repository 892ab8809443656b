"""The corpus once more, and some cases that are the same in each run: see README.md beside this folder."""

import io

import fuzz_sql
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sql_grammar
import sql_oracle
from driver import TARGETS, fuzz, known, replay, target_of
from fuzz_ledgers import Ledgers
from fuzz_releases import base

from noisegate.errors import SpecError
from noisegate.ledger.ledger import Ledger
from noisegate.ledger.verify.audit import Verification
from noisegate.sources.writing import weights
from noisegate.sql.order import SqlOrder
from refusals import about

CASES = {"sql": 10, "meaning": 150, "claims": 15, "policies": 12, "ledgers": 30, "releases": 150, "orders": 40, "analysts": 5}  # fmt: skip

WRITTEN = "SELECT sex, AVG(age) FROM patients GROUP BY sex"  # documents and tests change


def told(tally, name):
    found = {w: each for w, each in tally.findings.items() if f"{name}: {w}" not in known()}
    return "\n".join(f"{what}\n{text!r}\n{words}" for what, (_, text, words) in found.items())


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_every_case_of_the_corpus_is_accepted_or_refused(name):
    tally = replay(target_of(name))
    assert tally.cases
    assert not tally.findings, told(tally, name)


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_other_cases_are_accepted_or_refused(name, monkeypatch):
    monkeypatch.setattr(sql_grammar, "written", lambda: [WRITTEN])
    tally = fuzz(target_of(name), name, cases=CASES[name])
    assert tally.cases == CASES[name]
    assert not told(tally, name), told(tally, name)


def found_in(text, target=fuzz_sql.TARGET):
    with pytest.raises(AssertionError) as caught:
        target.check(text)
    return str(caught.value)


COUNT = '{"world": "tight", "seed": 0, "epsilon": 0.5}\nSELECT COUNT(*) AS n FROM visits'


def test_rows_that_outweigh_their_claim_are_caught(monkeypatch):
    monkeypatch.setattr(weights, "_scaled", lambda value, *_: value)
    assert "SENSITIVITY" in found_in(f"{COUNT} WHERE visit_id > -31")  # nobody asks that twice


def test_a_question_that_is_charged_twice_is_caught(monkeypatch):
    monkeypatch.setattr(SqlOrder, "job", SqlOrder.anew)
    assert "again" in found_in(COUNT)


def test_another_meaning_is_caught(monkeypatch):
    read = sql_oracle.exact_answer
    other = lambda con, sql, tables: read(con, sql.replace("> 50", ">= 51.5"), tables)  # noqa: E731
    monkeypatch.setattr(sql_oracle, "exact_answer", other)
    sql = "SELECT COUNT(*) AS n FROM patients WHERE age > 50"
    assert "otherwise" in found_in('{"world": "loose", "seed": 0, "epsilon": 300}\n' + sql)


def test_a_ledger_that_verifies_nothing_is_caught(monkeypatch):
    sound = Verification(problems=[], entries=0, head="")
    monkeypatch.setattr(Ledger, "verify", lambda *_, **__: sound)
    assert "not the same" in found_in('["sqlite", ["remove", 23201, 4]]', Ledgers())


def test_a_small_file_that_stands_for_millions_of_rows_is_refused(tmp_path):
    data, kind, _ = base("table")
    whole = pq.read_table(io.BytesIO(data))
    zeros = pa.table({name: np.zeros(1 << 22, np.int8) for name in whole.column_names})
    with pq.ParquetWriter(
        tmp_path / "x.parquet", zeros.schema.with_metadata(whole.schema.metadata)
    ) as file:
        for _ in range((1 << 27 >> 22) // whole.num_columns + 1):
            file.write_table(zeros)
    assert (tmp_path / "x.parquet").stat().st_size < 1 << 20
    with pytest.raises(SpecError, check=about("changed")):
        kind.load(tmp_path / "x.parquet")
