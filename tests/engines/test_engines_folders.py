"""Folders that name values mean the same on all engines, or the table is refused when opened."""

import pytest
from folder_cases import READ, REFUSED, count, opened, written

import noisegate
from noisegate.errors import PolicyError, SourceError
from refusals import about


@pytest.fixture(params=["spark", "datafusion"])
def address(request):
    """How an engine of files names a folder."""
    if request.param == "datafusion":
        return "datafusion://{}".format
    return f"{request.getfixturevalue('sail').url}#{{}}".format


@pytest.mark.parametrize("case", REFUSED)
def test_a_folder_that_says_something_else_than_its_files_is_refused(tmp_path, address, case):
    """Spark would read the folder's value, others the file's; or leave out a file's rows."""
    folder = written(tmp_path / "t", REFUSED[case])
    with pytest.raises(SourceError, check=about("folder")) as told:
        opened(folder, address(folder))
    assert "Paris" not in str(told.value)
    assert "Oslo" not in str(told.value)


@pytest.mark.parametrize("case", READ)
def test_rows_in_folders_that_name_values_are_all_read(tmp_path, address, case):
    folder = written(tmp_path / "t", READ[case])
    assert count(opened(folder, address(folder))) == [[3]]
    assert count(opened(folder, address(folder)), "SELECT COUNT(DISTINCT id) FROM t") == [[3]]


@pytest.mark.parametrize("value", ["Paris", "__HIVE_DEFAULT_PARTITION__", "S%C3%A3o", "007"])
def test_a_column_that_folders_alone_have_is_refused_where_they_are_no_columns(
    tmp_path, address, value
):
    folder = written(tmp_path / "t", {f"city={value}/a": {"id": [1]}})
    with pytest.raises(PolicyError):
        opened(folder, address(folder), 'city = { in = ["Paris", "S%C3%A3o", "007"] }')


def test_of_one_file_the_folders_above_it_say_nothing_on_any_engine(tmp_path, sail):
    written(tmp_path / "t", {"city=Paris/a": {"id": [1, 2], "city": ["Oslo", "Paris"]}})
    file, folder = tmp_path / "t" / "city=Paris" / "a.parquet", tmp_path / "t" / "city=Paris"
    column = 'city = { in = ["Oslo", "Paris"] }'
    for source in (file, f"datafusion://{file}", f"datafusion://{folder}", f"{sail.url}#{folder}"):
        gate = opened(folder, source, column)
        assert count(gate, "SELECT city, COUNT(*) FROM t GROUP BY city") == [
            ["Oslo", 1],
            ["Paris", 1],
        ]


def test_the_embedded_engine_reads_files_and_no_folders(tmp_path):
    folder = written(tmp_path / "t", READ["one name"])
    with pytest.raises(SourceError, check=about("file")):
        opened(folder, folder)
    with pytest.raises(SourceError):
        noisegate.open(folder / "*" / "a.parquet", unit="id", rows_per_unit=1, epsilon=1)


def test_folders_of_a_delta_table_are_compared_with_its_files_too(tmp_path, address):
    folder = written(tmp_path / "t", {"city=Paris/a": {"id": [1], "city": ["Oslo"]}})
    log = folder / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text(
        '{"protocol": {"minReaderVersion": 1}}\n{"metaData": {"configuration": {}}}\n'
        '{"add": {"path": "city=Paris/a.parquet", "partitionValues": {"city": "Paris"}}}\n'
    )
    with pytest.raises(SourceError, check=about("folder")):
        opened(folder, address(folder))
