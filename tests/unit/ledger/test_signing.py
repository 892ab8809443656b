"""What is signed can be checked by anybody, without the ledger; what was changed does not pass."""

import json
import os
import stat
import struct
from base64 import b64decode, b64encode
from pathlib import Path
from shutil import copy

import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import noisegate
from noisegate.cli import app
from noisegate.desk.card import Card
from noisegate.desk.checking import check_file
from noisegate.desk.signed import canonical_json, read_statement, signed, signer_of
from noisegate.errors import NoisegateError, SpecError
from noisegate.ledger.open import open_ledger
from noisegate.ledger.signing import Signer, fingerprint, make_key, public_key, read_public
from noisegate.ledger.verify.anchor import signed as signed_head
from noisegate.releases.forms.table import TableRelease
from refusals import about

ASKED = "SELECT ward, COUNT(*) AS n FROM people GROUP BY ward"


@pytest.fixture(scope="module")
def signer(tmp_path_factory):
    file = tmp_path_factory.mktemp("keys") / "steward.key"
    make_key(file)
    return Signer.load(file)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    file = tmp_path_factory.mktemp("keys") / "other.key"
    make_key(file)
    return Signer.load(file)


def opened(folder):
    rows = "\n".join(f"{ward},{age}" for ward in ("north", "süd €") for age in range(20, 70))
    (folder / "people.csv").write_text(f"ward,age\n{rows}\n")
    columns = {"ward": {"in": ["north", "süd €"]}, "age": {"between": [0, 100]}}
    return noisegate.open(folder / "people.csv", epsilon=10, columns=columns)


@pytest.fixture
def gate(tmp_path):
    return opened(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A gate that tests only read from."""
    gate = opened(tmp_path_factory.mktemp("people"))
    yield gate
    gate.ledger.close()


# keys


def test_a_key_file_is_its_owners_alone(tmp_path):
    file = tmp_path / "a.key"
    public = make_key(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert public == public_key(file)
    assert public not in repr(Signer.load(file))
    for mode in (0o604, 0o640, 0o666):
        file.chmod(mode)
        with pytest.raises(SpecError, check=about("key-mode")):
            Signer.load(file)
    file.chmod(0o600)
    with pytest.raises(SpecError, check=about("key-file")):
        make_key(file)
    assert public == public_key(file)  # the old one stays
    with pytest.raises(SpecError, check=about("key-file")):
        make_key("a\0b")


@pytest.mark.parametrize("content", [b"", b"-----BEGIN PRIVATE KEY-----\n", b"\xff" * 99, None])
def test_what_is_no_ed25519_key_does_not_sign(tmp_path, content):
    file = tmp_path / "a.key"
    if content is None:  # a key of another kind
        content = generate_private_key(SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
    file.touch(mode=0o600)
    file.write_bytes(content)
    with pytest.raises(SpecError, check=about("key-kind")):
        Signer.load(file)


def test_public_keys_are_read_as_text_and_as_pem(signer):
    raw = Ed25519PublicKey.from_public_bytes(b64decode(signer.public))
    pem = raw.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    assert read_public(pem) == read_public(f" {signer.public}\n") == signer.public
    elliptic = generate_private_key(SECP256R1()).public_key()
    wrong = elliptic.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    short = b64encode(b"x" * 31).decode()
    for text in ("", "steward", short, wrong, pem[:40], "ä"):
        with pytest.raises(SpecError, check=about("public-key")):
            read_public(text)


def test_fingerprints_tell_keys_apart(signer, other):
    assert fingerprint(signer.public) != fingerprint(other.public)
    assert len(fingerprint(signer.public)) == 19


# the canonical text


@pytest.mark.parametrize(
    ("bits", "text"),
    [  # RFC 8785, appendix B
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555554", "333333333.33333325"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_numbers_are_written_as_the_standard_says(bits, text):
    assert canonical_json(struct.unpack(">d", bytes.fromhex(bits))[0]) == text


def test_members_are_ordered_as_the_standard_says():
    """By UTF-16, as in section 3.2.3: the emoji before the Hebrew letter."""
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\x80", "\xf6"]
    text = canonical_json(dict.fromkeys(names, 0))
    assert list(json.loads(text)) == ["\r", "1", "\x80", "\xf6", "\u20ac", "\U0001f600", "\ufb33"]
    assert canonical_json('\u20ac$\x0f\nA\'B"\\"/') == '"\u20ac$\\u000f\\nA\'B\\"\\\\\\"/"'


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@settings(max_examples=400 if os.environ.get("NOISEGATE_EXPLORE") else 50)  # the same each run
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), plain))
def test_the_canonical_text_means_the_value_and_is_its_own(record):
    try:
        text = canonical_json(record)
    except ValueError:  # half a pair of UTF-16 in a name
        return
    assert canonical_json(json.loads(text)) == text
    assert json.loads(text, parse_int=float) == record


def test_whole_numbers_beyond_doubles_are_not_rounded():
    assert canonical_json(2**53 + 1) != canonical_json(2**53)


@pytest.mark.parametrize(
    "text",
    [
        '{"price": 1, "price": 9}',  # readers differ about which one holds
        '{"a": {"b": 1, "b": 1}}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": "\\ud800"}',
        "[1]",
        "{",
        "",
        "[" * 100_000,
        '{"a":' * 200 + "1" + "}" * 200,
    ],
)
def test_a_statement_that_could_be_read_in_two_ways_is_refused(text):
    with pytest.raises(SpecError, check=about("statement")):
        read_statement(text)


# signatures


def test_a_signature_survives_other_spaces_orders_and_spellings(signer):
    record = signed({"b": [1.0, 0.25, 10**17], "a": {"ward": "süd €", "n": None}}, signer)
    backwards = dict(reversed(record.items()))
    for text in (
        json.dumps(record, indent=7),
        json.dumps(backwards, ensure_ascii=False),
        json.dumps(record, separators=(",", ":"), sort_keys=True),
        json.dumps(record).replace("1.0", "1").replace("0.25", "25e-2"),
    ):
        assert signer_of(read_statement(text), signer.public) == signer.public


def test_a_changed_statement_does_not_verify(signer, other):
    record = signed({"n": 42, "price": {"epsilon": "1/10"}}, signer)
    value = record["signature"]["value"]
    theirs = {**record["signature"], "key": other.public}
    for changed in (
        {**record, "n": 43},
        {**record, "n": "42"},
        {**record, "more": None},
        {**record, "price": {"epsilon": "1/100"}},
        {name: each for name, each in record.items() if name != "price"},
        {**record, "signature": {**record["signature"], "value": value[:-8]}},
        {**record, "signature": {**record["signature"], "value": value[::-1]}},
        {**record, "signature": {**record["signature"], "value": 7}},
        {**record, "signature": {**record["signature"], "alg": "none"}},
        {**record, "signature": {**record["signature"], "extra": 1}},
        {**record, "signature": {"key": signer.public, "alg": "Ed25519"}},
        {**record, "signature": "x"},
        {**record, "signature": theirs},
        {**record, "signature": {**record["signature"], "key": ["x"]}},
    ):
        with pytest.raises(SpecError, check=about("signature")):
            signer_of(changed)


def test_another_key_and_no_key_do_not_pass_for_the_stewards(signer, other):
    record = {"n": 42}
    with pytest.raises(SpecError, check=about("other-key")):
        signer_of(signed(record, other), signer.public)
    for key in (None, signer.public):
        with pytest.raises(SpecError, check=about("unsigned")):
            signer_of(record, key)


def test_a_signature_of_one_statement_is_none_of_another(signer, shared):
    """Nor can that of a head be put onto a card, or the other way round."""
    answer = shared.sql(ASKED, epsilon=1)
    head = signed_head(shared.ledger.anchor(), signer)
    card = answer.card().signed(signer).to_dict()
    moved = {**card, "signature": {**card["signature"], "value": head["signature"]}}
    with pytest.raises(SpecError, check=about("signature")):
        signer_of(moved)


# files


@pytest.fixture(scope="module")
def written(shared, tmp_path_factory, signer):
    """A card, an answer, a head and a release, signed."""
    folder = tmp_path_factory.mktemp("written")
    answer = shared.sql(ASKED, epsilon=1)
    (folder / "a.card.json").write_text(answer.card().signed(signer).to_json())
    answer.to_json(folder / "a.json", sign=signer)
    (folder / "head.json").write_text(json.dumps(signed_head(shared.ledger.anchor(), signer)))
    shared.release("histogram", columns={"ward": None}, epsilon=1).save(
        folder / "r.parquet", sign=signer
    )
    return folder


@pytest.fixture
def handed(written, tmp_path):
    return {name: Path(copy(written / name, tmp_path)) for name in KINDS}


KINDS = {
    "a.card.json": "release card",
    "a.json": "answer",
    "head.json": "ledger head",
    "r.parquet": "saved release",
}


@pytest.mark.parametrize("name", KINDS)
def test_whatever_is_handed_over_is_checked_offline(handed, signer, other, name):
    found = check_file(handed[name], key=signer.public)
    assert found.ok
    assert found.trusted
    assert (found.kind, found.signer) == (KINDS[name], signer.public)
    assert found.in_ledger is None
    unasked = check_file(handed[name])
    assert unasked.ok
    assert not unasked.trusted
    assert "whose" in unasked.words("x")
    with pytest.raises(SpecError, check=about("other-key")):
        check_file(handed[name], key=other.public)


@pytest.mark.parametrize("name", KINDS)
def test_the_ledger_can_be_asked_as_well(handed, shared, signer, name):
    assert check_file(handed[name], key=signer.public, ledger=shared.ledger).in_ledger is True
    with open_ledger(":memory:") as another:
        found = check_file(handed[name], key=signer.public, ledger=another)
    assert not found.ok
    assert found.problems


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_half_a_file_is_refused(handed, name, share):
    content = handed[name].read_bytes()
    handed[name].write_bytes(content[: int(len(content) * share)])
    with pytest.raises(NoisegateError):
        check_file(handed[name])


def test_an_answer_states_its_question_and_no_number_can_change(handed, signer):
    record = json.loads(handed["a.json"].read_text())
    assert record["sql"] == ASKED
    assert record["head"]["seq"] > 0
    record["rows"][0][1] += 1
    handed["a.json"].write_text(json.dumps(record))
    with pytest.raises(SpecError, check=about("signature")):
        check_file(handed["a.json"], key=signer.public)


def test_a_release_with_another_number_and_a_fitting_seal_is_refused(handed, shared, signer):
    """Whoever changes numbers can compute the seal anew, not the signature over it."""
    file = handed["r.parquet"]
    old = pq.read_table(file)
    more = shared.release("histogram", columns={"age": 10}, epsilon=1)
    more.save(file)  # another release, whose seal fits, with the signature of the first
    new = pq.read_table(file)
    kept = {
        **new.schema.metadata,
        b"noisegate.signature": old.schema.metadata[b"noisegate.signature"],
    }
    pq.write_table(new.replace_schema_metadata(kept), file)
    with pytest.raises(SpecError, check=about("changed")):
        check_file(file, key=signer.public)


def test_a_signed_release_is_loaded_and_written_anew_by_other_tools(handed, signer):
    file = handed["r.parquet"]
    assert TableRelease.load(file).to_arrow().num_rows == 2
    pq.write_table(pq.read_table(file), file, compression="gzip", row_group_size=1)
    assert check_file(file, key=signer.public).ok


def test_what_was_not_made_here_is_not_signed(handed, signer, tmp_path):
    loaded = TableRelease.load(handed["r.parquet"])
    for name in ("b.parquet", "b.json", "b.card.json"):
        with pytest.raises(SpecError, check=about("loaded")):
            loaded.save(tmp_path / name, sign=signer)
        assert not (tmp_path / name).exists()


def test_practice_numbers_are_not_signed(signer, tmp_path, gate):
    trial = noisegate.open(tmp_path / "people.csv", epsilon=1, ledger=":memory:", practice=True)
    with pytest.raises(SpecError, check=about("practice")):
        trial.sql("SELECT COUNT(*) AS n FROM people", epsilon=1).to_json(sign=signer)


def test_an_unsigned_answer_is_not_vouched_for_by_a_ledger_that_knows_its_head(gate, tmp_path):
    """The head shows where it stood, and not that these were the numbers."""
    file = tmp_path / "a.json"
    answer = gate.sql(ASKED, epsilon=1)
    answer.to_json(file)
    found = check_file(file, ledger=gate.ledger)
    assert found.in_ledger is True
    assert not found.ok
    file.write_text(answer.card().to_json())
    assert check_file(file, ledger=gate.ledger).ok


def test_the_page_of_a_signed_card_names_the_key(shared, signer):
    card = shared.sql(ASKED, epsilon=1).card().signed(signer)
    assert f"Signed by key {fingerprint(signer.public)}." in card.to_markdown()
    assert Card.from_json(card.to_json()).to_dict() == card.to_dict()


# the command line


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_story_of_signing_on_the_command_line(tmp_path, gate):
    key, pub, card = (tmp_path / name for name in ("steward.key", "steward.pub", "n.card.json"))
    public = run("key", "new", key).stdout.strip()
    assert run("key", "show", key).stdout.strip() == public
    shown = json.loads(run("key", "show", key, "--json").stdout)
    assert shown == {"key": public, "fingerprint": fingerprint(public)}
    pub.write_text(public + "\n")
    table = str(gate.ledger.path).removesuffix(".ledger")
    asked = ("ask", table, ASKED, "--epsilon", 1, "--keys", "ward=north,süd €")
    said = run(*asked, "--sign", key, "--save", card, "--json")
    assert said.exit_code == 0, said.output
    assert signer_of(json.loads(said.stdout)) == public
    assert run("verify", card, "--key-file", pub).stdout.startswith("ok: release card, signed by")
    assert run("verify", card, "--key", public, "--ledger", table).exit_code == 0
    assert json.loads(run("verify", card, "--json").stdout)["trusted_key"] is False
    record = json.loads(card.read_text())
    card.write_text(json.dumps({**record, "rows": 1000}))
    changed = run("verify", card)
    assert changed.exit_code == 5
    assert "The signature is not valid" in changed.stdout
    assert json.loads(run("verify", card, "--json").stdout)["ok"] is False
    card.write_text(json.dumps({name: record[name] for name in record if name != "signature"}))
    unsigned = run("verify", card)
    assert unsigned.exit_code == 5
    assert "not signed" in unsigned.stdout


def test_a_key_that_cannot_sign_is_refused_before_anything_is_paid(tmp_path, gate):
    key = tmp_path / "steward.key"
    make_key(key)
    table = str(gate.ledger.path).removesuffix(".ledger")
    asked = ("ask", table, ASKED, "--epsilon", 1, "--keys", "ward=north,süd €", "--sign", key)
    for name in ("a.csv", "a.parquet", "a.md", "a.png"):
        refused = run(*asked, "--save", tmp_path / name)
        assert isinstance(refused.exception, SpecError)
    key.chmod(0o644)
    assert isinstance(run(*asked).exception, SpecError)
    assert gate.spent.epsilon == 0
