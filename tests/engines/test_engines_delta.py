"""Delta tables by their log: the rows of the newest version, and no row of a former one."""

import json
from contextlib import suppress
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import noisegate
from noisegate.errors import SourceError
from noisegate.sources.asked.delta import live_files
from noisegate.sources.asked.folders import named_values
from refusals import about

KEPT = f"{0:020}.checkpoint.parquet"
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
POLICY = """
name = "clinic"
[budget]
epsilon = 1000000
[tables.visits]
source = "{source}"
unit = "who"
rows_per_unit = 1
[tables.visits.columns]
who = {{ type = "integer" }}
"""


def add(path, **more):
    return {"add": {"path": path, "partitionValues": {}, "size": 1, "dataChange": True, **more}}


def remove(path, **more):
    return {"remove": {"path": path, "dataChange": True, **more}}


def table(folder, *commits, checkpoint=None):
    """Files p0, p1, …, each with the rows of ten persons more, and a log of such actions."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    for place in range(4):
        who = np.arange(10 * (place + 1)) + 1000 * place
        pq.write_table(pa.table({"who": who}), folder / f"p{place}.parquet")
    for version, actions in enumerate(commits):
        text = "\n".join(map(json.dumps, actions))
        (log / f"{version:020}.json").write_text(text + "\n")
        (log / f"{version:020}.crc").write_text("{}")
    if checkpoint is not None:
        keep(log, checkpoint, [action for each in commits[: checkpoint + 1] for action in each])
    return folder


def keep(log, version, actions):
    """A checkpoint in one part, and the commits up to it gone, as after a clean-up."""
    added = [each["add"] for each in actions if "add" in each]
    paths = {each["path"]: list(each["partitionValues"].items()) for each in added}
    gone = {each["remove"]["path"] for each in actions if "remove" in each}
    rows = [{"protocol": PROTOCOL["protocol"], "add": None, "metaData": None},
            {"protocol": None, "add": None, "metaData": {"id": "x", "configuration": [("a", "b")]}}]  # fmt: skip
    rows += [{"protocol": None, "add": {"path": each, "stats": "{}", "partitionValues": values},
              "metaData": None} for each, values in paths.items() if each not in gone]  # fmt: skip
    schema = pa.schema({
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
        "add": pa.struct({
            "path": pa.string(), "stats": pa.string(),
            "partitionValues": pa.map_(pa.string(), pa.string()),
        }),
        "metaData": pa.struct({
            "id": pa.string(), "configuration": pa.map_(pa.string(), pa.string()),
        }),
    })  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows, schema), log / f"{version:020}.checkpoint.parquet")
    (log / "_last_checkpoint").write_text(json.dumps({"version": version}))
    for each in range(version + 1):
        (log / f"{each:020}.json").unlink()


@pytest.fixture(params=["datafusion", "sail"])
def persons(request, tmp_path):
    """How many persons a gate in front of a folder counts: exactly, at such a price."""

    def counted(folder):
        url = f"datafusion://{folder}"
        if request.param == "sail":
            url = f"{request.getfixturevalue('sail').url}#{folder}"
        file = tmp_path / "clinic.toml"
        file.write_text(POLICY.format(source=url))
        with noisegate.open(file, ledger=":memory:") as gate:
            return gate.sql("SELECT COUNT(*) AS n FROM visits", epsilon=100_000).rows[0][0]

    return counted


CHANGED = (
    [PROTOCOL, add("p0.parquet"), add("p1.parquet")],
    [remove("p0.parquet"), add("p2.parquet")],
)


def test_rows_of_former_versions_are_not_counted(tmp_path, persons):
    """Two files were written, one of them replaced by a third; the fourth was never committed."""
    assert persons(table(tmp_path / "visits", *CHANGED)) == 20 + 30


def test_a_log_goes_on_after_its_checkpoint(tmp_path, persons):
    commits = (*CHANGED, [add("p3.parquet")], [remove("p1.parquet")])
    assert persons(table(tmp_path / "visits", *commits, checkpoint=1)) == 30 + 40


VECTOR = {"storageType": "u", "pathOrInlineDv": "ab", "sizeInBytes": 1, "cardinality": 1}
UNKNOWN = {
    "a vector": [[PROTOCOL, add("p0.parquet")], [remove("p0.parquet"), add("p0.parquet", deletionVector=VECTOR)]],
    "names": [[{"metaData": {"configuration": {"delta.columnMapping.mode": "name"}}}, add("p0.parquet")]],
    "features": [[{"protocol": {"minReaderVersion": 3, "readerFeatures": ["variantType"]}}, add("p0.parquet")]],
    "a newer protocol": [[{"protocol": {"minReaderVersion": 4}}, add("p0.parquet")]],
    "a clone": [[add("file:///elsewhere/p0.parquet")]],
    "above": [[add("../visits/p0.parquet")]],
    "removed elsewhere": [[PROTOCOL, add("p0.parquet"), add("p1.parquet")], [remove("file:///visits/p0.parquet")]],
    "no file": [[PROTOCOL, add("p0.parquet")], [remove("p0.parquet")]],
    "no action": [[["add"]]],
}  # fmt: skip


STORED = pa.schema({
    "protocol": pa.struct({"minReaderVersion": pa.int32(), "readerFeatures": pa.list_(pa.string())}),
    "metaData": pa.struct({"configuration": pa.map_(pa.string(), pa.string())}),
    "add": pa.struct({
        "path": pa.string(), "stats": pa.string(), "deletionVector": pa.struct({
            "storageType": pa.string(), "pathOrInlineDv": pa.string(), "offset": pa.int32(),
        }),
    }),
    "remove": pa.struct({"path": pa.string()}),
})  # fmt: skip


@pytest.mark.parametrize(("more", "found"), [
    ({"remove": {"path": "p3.parquet"}}, 10 + 20),
    ({"add": {"path": "p2.parquet", "deletionVector": VECTOR}}, None),
    ({"protocol": {"minReaderVersion": 3, "readerFeatures": ["v2Checkpoint"]}}, None),
    ({"metaData": {"configuration": [("delta.columnMapping.mode", "id")]}}, None),
])  # fmt: skip
def test_a_checkpoint_of_parts_says_what_commits_say(tmp_path, persons, more, found):
    """Tombstones of former versions are in it, too; of a later one, a part is missing."""
    folder, features = table(tmp_path / "visits"), ["deletionVectors"]
    parts = (
        [{"protocol": {"minReaderVersion": 3, "readerFeatures": features}}, add("p0.parquet")],
        [add("p1.parquet"), more],
    )
    for place, actions in enumerate(parts, start=1):
        held = pa.Table.from_pylist(actions, STORED)
        for version in (1, 2)[:place]:
            name = f"{version:020}.checkpoint.{place:010}.{2:010}.parquet"
            pq.write_table(held, folder / "_delta_log" / name)
    if found is None:
        with pytest.raises(SourceError, check=about("log")):
            persons(folder)
    else:
        assert persons(folder) == found


@pytest.mark.parametrize("why", UNKNOWN)
def test_what_plain_files_cannot_say_is_refused(tmp_path, persons, why):
    with pytest.raises(SourceError, check=about("log", "file")):
        persons(table(tmp_path / "visits", *UNKNOWN[why]))


def test_a_log_with_a_gap_and_tables_of_other_kinds_are_refused(tmp_path, persons):
    folder = table(tmp_path / "visits", *CHANGED, [add("p3.parquet")])
    (folder / "_delta_log" / f"{1:020}.json").unlink()
    iceberg = tmp_path / "ice"
    (iceberg / "metadata").mkdir(parents=True)
    (iceberg / "metadata" / "v1.metadata.json").write_text("{}")
    pq.write_table(pa.table({"who": [1]}), iceberg / "p0.parquet")
    for place in (folder, iceberg):
        with pytest.raises(SourceError, check=about("log")):
            persons(place)


def test_a_part_of_a_table_and_a_folder_of_tables_are_refused(tmp_path, persons, request):
    """Files of former versions lie there, and the log that tells them lies elsewhere."""
    folder = table(tmp_path / "visits", *CHANGED)
    (folder / "g=1").mkdir()
    pq.write_table(pa.table({"who": [1]}), folder / "g=1" / "p4.parquet")
    with pytest.raises(SourceError, check=about("log")):
        persons(folder / "g=1")
    if "datafusion" in request.node.name:  # Spark looks into folders of partitions only
        with pytest.raises(SourceError, check=about("log")):
            persons(tmp_path)


AS_NAMED = {
    "city=Oslo/p0": {"city": "Oslo"}, "n=7/m=a%253Ab/p0": {"m": "a:b", "n": "7"},
    "g=__HIVE_DEFAULT_PARTITION__/p0": {"g": ""}, "ab/p0": {}, "n=x=y/p0": {"n": "x=y"},
}  # fmt: skip
OTHERWISE = {
    "city=Paris/p0": {"city": "Oslo"}, "City=Oslo/p0": {"city": "Oslo"}, "city=/p0": {"city": None},
    "ab/p0": {"city": "Oslo"}, "city=Oslo/p1": {}, "city=Oslo/n=7/p0": {"city": "Oslo"},
    "city=Oslo/p2": None, "n=07/p0": {"n": "7"},
}  # fmt: skip


@pytest.mark.parametrize("is_kept", [False, True])
def test_partitions_have_the_values_of_the_log_or_are_refused(is_kept):
    """Spark reads them from the names of folders: in the log, the same file may have others."""

    def held(path, values):
        if not is_kept:
            return Held([add(f"{path}.parquet", partitionValues=values)], [add("b")], [remove("b")])
        stored = None if values is None else list(values.items())
        log = Held()
        log.checkpoint = {KEPT: [add(f"{path}.parquet", partitionValues=stored)]}.__getitem__
        log.texts = {KEPT: None}
        return log

    for path, values in AS_NAMED.items():
        assert live_files(held(path, values)) == (f"{path}.parquet".replace("%25", "%"),)
    for path, values in OTHERWISE.items():
        with pytest.raises(SourceError, check=about("log")):
            live_files(held(path, values))


def test_values_of_files_that_are_gone_do_not_matter():
    gone = "city=Paris/a"
    assert live_files(Held([add(gone, partitionValues={"city": "Oslo"})], [remove(gone)])) == ()


@pytest.mark.parametrize("checkpoint", [None, 0])
def test_values_are_read_from_every_log(tmp_path, persons, checkpoint):
    """From commits and from checkpoints, by each engine's own reader."""
    for value in ("Oslo", "Paris"):
        folder, action = tmp_path / value, add("city=Oslo/p0.parquet", partitionValues={"city": value})  # fmt: skip
        (folder / "city=Oslo").mkdir(parents=True)
        table(folder, [PROTOCOL, action], checkpoint=checkpoint)
        (folder / "p0.parquet").rename(folder / "city=Oslo" / "p0.parquet")
        if value == "Oslo":
            assert persons(folder) == 10
        else:
            with pytest.raises(SourceError, check=about("log")):
                persons(folder)


@pytest.mark.parametrize("name", ["a%20b", "[1]", "{a}", "g=a%2Fb/p", "g=x y/é"])
def test_no_other_file_is_read_than_the_log_names(tmp_path, persons, name):
    """Whoever reads a name as a pattern, or decodes it once more, finds others."""
    said = named_values(name.split("/")[:-1])
    action = add(quote(f"{name}.parquet"), partitionValues=said)
    folder = table(tmp_path / "visits", [PROTOCOL, action])
    for rows, each in enumerate((name, "a b", "1", "a", "g=a/b/p"), start=7):
        file = folder / f"{each}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"who": np.arange(rows)}), file)
    read = []
    with suppress(SourceError):
        read.append(persons(folder))
    assert read == [7] or ("é" not in name and not read)


class Held:
    """A log in memory."""

    def __init__(self, *commits):
        self.texts = {f"{at:020}.json": "\n".join(map(json.dumps, each)) for at, each in enumerate(commits)}  # fmt: skip

    def names(self):
        return [*self.texts, "_last_checkpoint"]

    def commit(self, name):
        return self.texts[name]

    def checkpoint(self, name):
        raise AssertionError(name)


def test_the_order_of_actions_within_a_commit_does_not_matter():
    """An optimised file may be removed and others added in any order; names are those of URIs."""
    first = [add("a%20b.parquet"), add("c.parquet")]
    for second in (
        [remove("c.parquet"), add("d.parquet")],
        [add("d.parquet"), remove("c.parquet")],
    ):
        assert live_files(Held(first, second)) == ("a b.parquet", "d.parquet")
    assert live_files(Held([])) == ()


def test_a_file_is_the_same_however_its_path_is_written():
    """One that stayed would bring back whoever was deleted; one that is twice doubles its rows."""
    for one, other in (("a%2Db", "a-b"), ("a b", "a%20b"), ("./a", "a"), ("g=1//a", "g=1/a")):
        for first, second in ((one, other), (other, one)):
            assert live_files(Held([add(first), add("c")], [remove(second)])) == ("c",)
            said = named_values(first.split("/")[:-1])
            twice = [[add(each, partitionValues=said)] for each in (first, second)]
            assert len(live_files(Held(*twice))) == 1
    assert live_files(Held([add("g=10%3A00/a%2520b", partitionValues={"g": "10:00"})])) == (
        "g=10:00/a%20b",
    )


def test_texts_of_rows_in_a_log_do_not_end_its_lines():
    """Commits state the least and the largest values, and JSON need not escape these."""
    held = Held([])
    action = add("a", stats=json.dumps({"maxValues": {"t": "x\u2028y\x85z"}}, ensure_ascii=False))
    held.texts[f"{0:020}.json"] = json.dumps(action, ensure_ascii=False)
    assert live_files(held) == ("a",)


def test_a_vector_is_the_same_in_a_checkpoint_and_in_a_commit():
    """A checkpoint says of all its parts that they are missing, a commit says nothing of them."""
    held, at = Held([]), f"{0:020}.checkpoint"
    stored = {**VECTOR, "offset": None, "maxRowIndex": None}
    parts = {f"{at}.parquet": [add("a", deletionVector=stored)],
             f"{at}.{1:010}.{2:010}.parquet": [add("b")],
             f"{at}.{2:010}.{2:010}.parquet": [add("c")]}  # fmt: skip
    held.checkpoint = parts.__getitem__
    held.texts = {
        **dict.fromkeys(parts),
        f"{1:020}.json": json.dumps(remove("a", deletionVector=VECTOR))
        + "\n"
        + json.dumps(add("d")),
    }
    assert live_files(held) == ("d",)  # the whole one, since parts may be of several writers
