"""What is handed to others: the same bytes twice, all that it needs named, signed, and it answers."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from noisegate.ledger.signing import make_key

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def dist():
    """The script, by its plain name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "deploy"))
        yield importlib.import_module("dist")
    for name in ("dist", "sbom"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def built(dist, tmp_path_factory):
    """Two builds, the second signed, and the key; as if all were committed."""
    home = tmp_path_factory.mktemp("built")
    one, two, key = home / "one", home / "two", home / "project.key"
    public = make_key(key)
    dist.build(one)
    with pytest.MonkeyPatch.context() as patch:
        real = dist._git
        patch.setattr(dist, "_git", lambda *words: "" if words[0] == "status" else real(*words))
        dist.build(two, key=key)
    return one, two, public


@pytest.mark.long
def test_two_builds_give_the_same_bytes(built):
    one, two = ({file.name: file.read_bytes() for file in folder.iterdir()} for folder in built[:2])
    assert two.pop("SHA256SUMS.sig")
    assert one == two
    stem = f"noisegate_dp-{PROJECT['version']}"
    assert one.keys() == {
        f"{stem}-py3-none-any.whl", f"{stem}.tar.gz", f"{stem}.cdx.json", f"{stem}.md", "SHA256SUMS",
    }  # fmt: skip
    assert one[f"{stem}.md"].startswith(f"# noisegate {PROJECT['version']}".encode())


def test_the_bill_names_what_the_package_needs_and_can_use(built):
    (file,) = built[0].glob("*.cdx.json")
    bill = json.loads(file.read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    found = {each["name"]: each for each in bill["components"]}

    def names(requirements):
        return {re.match(r"[\w.-]+", each)[0].lower() for each in requirements}

    required = {name for name, each in found.items() if each["scope"] == "required"}
    assert names(PROJECT["dependencies"]) <= required
    extras = PROJECT["optional-dependencies"]
    optional = set().union(*(names(each) for extra, each in extras.items() if extra != "all"))
    assert optional <= found.keys()
    assert not {"pytest", "ruff", "mypy", "hypothesis", "pip"} & found.keys()
    lock = (ROOT / "requirements.lock").read_text()
    for name, each in found.items():
        assert f"{name}=={each['version']}" in lock
        assert each["purl"] == f"pkg:pypi/{name}@{each['version']}"
        assert each["licenses"]
    refs = {each["bom-ref"] for each in bill["components"]}
    below = {ref for each in bill["dependencies"] for ref in each["dependsOn"]}
    assert below == refs  # nothing is listed that nothing needs


def test_what_is_signed_is_told_from_what_was_changed(dist, built, tmp_path):
    one, two, public = built
    other = make_key(tmp_path / "other.key")
    assert dist.verify(one, public) == ["there is no SHA256SUMS with SHA256SUMS.sig"]
    assert dist.verify(two, public) == []
    assert dist.verify(two, other) == ["SHA256SUMS is not signed by this key, or was changed since"]
    copy = shutil.copytree(two, tmp_path / "copy")
    (wheel,) = copy.glob("*.whl")
    wheel.write_bytes(wheel.read_bytes()[:-1])
    (copy / "extra").write_text("")
    next(copy.glob("*.md")).unlink()
    wrong = dist.verify(copy, public)
    assert [each.partition(" is ")[2] for each in wrong] == ["not what was signed"] * 2 + [
        "missing"
    ]


def test_nothing_is_signed_that_is_not_committed_or_not_ours(dist, tmp_path, monkeypatch):
    make_key(tmp_path / "project.key")
    monkeypatch.setattr(dist, "_git", lambda *words: " M src")
    with pytest.raises(SystemExit, match="Only what is committed is signed"):
        dist.build(tmp_path / "dist", key=tmp_path / "project.key")
    with pytest.raises(SystemExit, match="holds other files"):
        dist.build(tmp_path)


@pytest.mark.long
def test_the_wheel_alone_answers(built, tmp_path):
    (wheel,) = built[0].glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "site")
        tops = {name.partition("/")[0] for name in packed.namelist()}
    assert tops == {"noisegate", f"noisegate_dp-{PROJECT['version']}.dist-info"}
    environment = os.environ | {
        "PYTHONPATH": str(tmp_path / "site"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    where = "import noisegate; print(noisegate.__file__)"
    for words, said in ((["-c", where], str(tmp_path)), (["-m", "noisegate", "demo"], "verified")):
        done = subprocess.run(
            [sys.executable, *words], env=environment, cwd=tmp_path, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        assert said in done.stdout


def test_who_cites_it_cites_this_version():
    said = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {PROJECT['version']}\n" in said
    assert f"\nlicense: {PROJECT['license']}\n" in said
