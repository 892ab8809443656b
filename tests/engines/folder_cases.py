"""Tables in folders that name values; Spark alone makes columns of such names."""

import pyarrow as pa
import pyarrow.parquet as pq

import noisegate

REFUSED = {
    "another value": {"city=Paris/a": {"id": [1, 2], "city": ["Oslo", None]}},
    "the same value": {"city=Oslo/a": {"id": [1, 2], "city": ["Oslo", "Oslo"]}},
    "another type": {"n=7/a": {"id": [1, 2], "n": [5, 6]}},
    "another case": {"City=Paris/a": {"id": [1], "city": ["Oslo"]}},
    "a unit": {"id=9/a": {"id": [1, 2]}, "id=8/a": {"id": [3]}},
    "beside such folders": {"n=7/a": {"id": [1]}, "b": {"id": [2]}},
    "another order": {"n=7/m=1/a": {"id": [1]}, "m=1/n=7/b": {"id": [2]}},
    "twice": {"n=7/n=1/a": {"id": [1]}},
    "unlike case": {"n=7/a": {"id": [1]}, "N=8/a": {"id": [2]}},
}
READ = {
    "one name": {"city=Paris/a": {"id": [1, 2]}, "city=Rome/a": {"id": [3]}},
    "no value": {"city=__HIVE_DEFAULT_PARTITION__/a": {"id": [1, 2]}, "city=Rome/a": {"id": [3]}},
    "two names": {"n=1/m=2/a": {"id": [1, 2]}, "n=1/m=3/a": {"id": [3]}},
    "a name that begins so": {"_n=1/a": {"id": [1, 2]}, "_n=2/a": {"id": [3]}},
    "a value that ends so": {"n=1.parquet/a": {"id": [1, 2]}, "n=2/a": {"id": [3]}},
}
POLICY = """
name = "parted"
[budget]
epsilon = 1000000
[tables.t]
source = "{source}"
unit = "id"
rows_per_unit = 3
[tables.t.columns]
{columns}
"""


def written(root, files):
    """The table's folder."""
    for name, columns in files.items():
        file = root / f"{name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), file)
    return root


def opened(folder, source, columns=""):
    """A gate to the table."""
    file = folder.parent / f"{folder.name}.toml"
    file.write_text(POLICY.format(source=source, columns=columns))
    return noisegate.open(file, ledger=":memory:")


def count(gate, sql="SELECT COUNT(*) FROM t"):
    """The rows that are read, at a price where noise is 0."""
    return gate.sql(sql, epsilon=20_000).to_pandas().to_numpy().tolist()
