"""A service with a key signs what it answers; whoever gets it checks it offline."""

import json
from contextlib import closing

import httpx
import pytest
from served import PEOPLE, QUICK, serving

import noisegate
from noisegate.desk.checking import check_file
from noisegate.desk.signed import signer_of
from noisegate.errors import SpecError
from noisegate.ledger.signing import Signer, make_key
from noisegate.server.serve import Serving
from noisegate.server.service import Service
from refusals import about

COUNT = {"kind": "sql", "sql": "SELECT COUNT(*) AS n FROM visits", "epsilon": "0.25"}
RELEASE = {
    "kind": "release",
    "name": "histogram",
    "columns": {"ward": None},
    "table": "visits",
    "epsilon": "0.25",
}
CAPS = {"kind": "caps", "table": "visits", "epsilon": "1/4"}
PARQUET = "application/vnd.apache.parquet"


@pytest.fixture
def key(tmp_path):
    make_key(tmp_path / "steward.key")
    return tmp_path / "steward.key"


@pytest.fixture
def signing(clinic, key):
    """A service with a key, over HTTP."""
    signer = Serving.chosen(policies=[clinic], signing_key=key).signer
    service = Service([clinic], settings=QUICK, signer=signer)
    for name, role in PEOPLE.items():
        service.people.add(name, role)
    with closing(service), serving(service) as found:
        yield found


def calls(found, person):
    headers = {"Authorization": f"Bearer {found.tokens[person]}"}
    return httpx.Client(base_url=found.url, headers=headers, timeout=30)


def test_answers_cards_releases_and_heads_are_signed(signing, key, tmp_path):
    public, files = Signer.load(key).public, {}
    with calls(signing, "ana") as web:
        for name, order in {"answer": COUNT, "release": RELEASE, "result": CAPS}.items():
            said = web.post("/datasets/clinic/orders", json=order)
            files[f"{name}.json"] = said.content
            place = said.headers["content-location"].removesuffix("/result")
            if name == "result":
                continue
            files[f"{name}.card.json"] = web.get(f"{place}/card").content
            if name == "release":
                form = {"Accept": PARQUET}
                files["release.parquet"] = web.get(f"{place}/result", headers=form).content
        practice = web.post("/datasets/clinic/practice", json=COUNT).json()
    with calls(signing, "aud") as web:
        files["head.json"] = json.dumps(web.get("/ledger/head").json()["heads"]["clinic"]).encode()
    kinds = {}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        found = check_file(tmp_path / name, key=public)
        assert found.ok, (name, found)
        kinds[name] = found.kind
    assert kinds == {
        "answer.json": "answer",
        "answer.card.json": "release card",
        "release.json": "answer",
        "release.card.json": "release card",
        "release.parquet": "saved release",
        "result.json": "result",
        "head.json": "ledger head",
    }
    assert "signature" not in practice
    record = json.loads(files["result.json"])
    assert record["order"] == CAPS
    with pytest.raises(SpecError, check=about("signature")):
        signer_of({**record, "units": [0]})


def test_a_client_reads_signed_answers_as_any_other(signing):
    gate = noisegate.connect(signing.url, token=signing.tokens["ana"], dataset="clinic")
    answer = gate.sql(COUNT["sql"], epsilon="0.25")
    made = gate.release("histogram", table="visits", columns={"ward": None}, epsilon="0.25")
    gate._calls.close()
    assert answer.columns == ("n",)
    assert answer.cost.epsilon == 0.25
    assert made.answer().table.num_rows == 4


def test_a_key_that_others_can_read_starts_no_service(clinic, key):
    key.chmod(0o644)
    with pytest.raises(SpecError, check=about("key-mode")):
        Serving.chosen(policies=[clinic], signing_key=key).signer  # noqa: B018 - read it
