"""Tumult Analytics on local Spark: the questions of `bench/tumult.py`, twice each, as JSON."""

import argparse
import json
import os
import sys
import time
from importlib.metadata import version
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession
from tmlt.analytics import (
    AddOneRow,
    AddRowsWithID,
    KeySet,
    MaxRowsPerID,
    PureDPBudget,
    QueryBuilder,
    Session,
)

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder")
parser.add_argument("--groups", type=int, required=True)
parser.add_argument("--high", type=float, required=True)
parser.add_argument("--cap", type=int, required=True)
parser.add_argument("--epsilon", type=float, required=True)
said = parser.parse_args()

os.environ["PYSPARK_PYTHON"] = sys.executable  # of Spark's workers, too

home = TemporaryDirectory()  # of tables that Tumult keeps between steps
made = SparkSession.builder.master("local[2]").config("spark.driver.memory", "3g")
for name, value in (
    ("spark.sql.shuffle.partitions", "2"),
    ("spark.ui.enabled", "false"),
    ("spark.ui.showConsoleProgress", "false"),
    ("spark.log.level", "ERROR"),
    ("spark.sql.warehouse.dir", home.name),
):
    made = made.config(name, value)
spark = made.getOrCreate()
ten = spark.read.parquet(f"{said.folder}/ten").select("user", "g", "x")
keys = KeySet.from_dict({"g": list(range(said.groups))})
HALF = PureDPBudget(said.epsilon / 2)
SIDES = {
    "rows": (AddOneRow(), QueryBuilder("ten")),
    "users": (AddRowsWithID("user"), QueryBuilder("ten").enforce(MaxRowsPerID(said.cap))),
}


def asked(session: Session, rows: QueryBuilder) -> list[list[float]]:
    """COUNT and SUM of each group: a query each, for half the price."""
    count = session.evaluate(rows.groupby(keys).count(name="n"), HALF)
    total = session.evaluate(rows.groupby(keys).sum("x", 0, said.high, name="s"), HALF)
    both = count.toPandas().merge(total.toPandas(), on="g").sort_values("g")
    return both[["g", "n", "s"]].to_numpy(dtype=float).tolist()


found = []
for unit, (change, rows) in SIDES.items():
    session = Session.from_dataframe(PureDPBudget(1_000_000), "ten", ten, protected_change=change)
    for _ in range(2):
        start = time.time()
        answer = asked(session, rows)
        found.append({"unit": unit, "start": start, "end": time.time(), "answer": answer})
print(json.dumps({"release": f"Tumult Analytics {version('tmlt.analytics')}", "asked": found}))
