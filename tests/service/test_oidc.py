"""Tokens of a provider: who they are for, who signed them, until when; and who is known here."""

import json
import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from noisegate.errors import OperatorError, Unauthenticated
from noisegate.server import oidc
from noisegate.server.oidc import Issuer
from noisegate.server.people import People
from noisegate.server.serve import Serving

ISSUER, HERE = "https://id.example", "noisegate"
KEY = ec.generate_private_key(ec.SECP256R1())
OTHER = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture
def issuer(tmp_path):
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key()))
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [{**public, "kid": "k1", "use": "sig"}]}))
    return Issuer(issuer=ISSUER, audience=HERE, keys=str(file))


def token(key=KEY, algorithm="ES256", kid="k1", **claims):
    said = {"iss": ISSUER, "aud": HERE, "exp": time.time() + 60, "email": "ana"}
    said |= {"email_verified": True} | claims
    kept = {name: value for name, value in said.items() if value is not None}
    return jwt.encode(kept, key, algorithm=algorithm, headers={"kid": kid} if kid else None)


def test_a_person_who_is_known_here_comes_in(service, issuer):
    people = People(service.store, issuer)
    caller = people.by_token(token())
    assert (caller.name, caller.role) == ("ana", "analyst")
    assert service.view(caller, "clinic").may_ask


def test_somebody_whom_only_the_provider_knows_does_not(service, issuer):
    with pytest.raises(Unauthenticated):
        People(service.store, issuer).by_token(token(email="mallory"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": OTHER},
        {"kid": "k2"},
        {"exp": 1_000_000_000},
        {"exp": None},
        {"aud": "another"},
        {"aud": None},
        {"iss": "https://evil.example"},
        {"email": None},
        {"email": ["ana"]},
        {"email_verified": False},
        {"email_verified": "false"},
        {"email_verified": "true"},
        {"email_verified": 1},
        {"email_verified": None},
        {"key": "secret" * 10, "algorithm": "HS256"},
        {"key": rsa.generate_private_key(65537, 2048), "algorithm": "RS256"},
    ],
    ids="-".join,
)
def test_what_is_forged_expired_or_for_others_is_refused(issuer, wrong):
    with pytest.raises(Unauthenticated):
        issuer.name_of(token(**wrong))


def test_the_only_key_needs_no_name_and_one_of_several_does(issuer, tmp_path):
    assert issuer.name_of(token(kid=None)) == "ana"
    with pytest.raises(Unauthenticated):
        issuer.name_of(token(kid=None, key=OTHER))
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key()))
    nameless, two = tmp_path / "nameless.json", tmp_path / "two.json"
    nameless.write_text(json.dumps({"keys": [public, {**public, "use": "enc"}]}))
    two.write_text(json.dumps({"keys": [public, {**public, "kid": "k1"}]}))
    one = Issuer(issuer=ISSUER, audience=HERE, keys=str(nameless))
    several = Issuer(issuer=ISSUER, audience=HERE, keys=str(two))
    assert one.name_of(token(kid=None)) == several.name_of(token()) == "ana"
    with pytest.raises(Unauthenticated):
        several.name_of(token(kid=None))


def test_keys_of_another_kind_are_passed_over(issuer, tmp_path):
    """A provider that adds a key of a new kind goes on signing in."""
    file = tmp_path / "keys.json"
    new = {"kty": "AKP", "kid": "k9", "alg": "ML-DSA-65"}
    file.write_text(json.dumps({"keys": [new, *json.loads(file.read_text())["keys"]]}))
    assert issuer.name_of(token()) == "ana"
    for kid in ("k9", None):
        with pytest.raises(Unauthenticated):
            issuer.name_of(token(kid=kid))


def test_a_token_without_a_signature_is_refused(issuer):
    head, body, _ = token().split(".")
    unsigned = jwt.encode({"email": "ana"}, None, algorithm="none")
    for text in (f"{head}.{body}.", unsigned, "a.b.c", ".."):
        with pytest.raises(Unauthenticated):
            issuer.name_of(text)


def test_the_public_key_as_a_secret_is_refused(issuer):
    """A classic confusion: what everybody knows must not sign."""
    text = issuer._read()["k1"].public_numbers().x.to_bytes(32, "big")
    with pytest.raises(Unauthenticated):
        issuer.name_of(token(key=text, algorithm="HS256"))


def test_an_address_that_is_not_verified_needs_the_operators_word(issuer):
    trusting = Issuer(issuer=ISSUER, audience=HERE, keys=issuer.keys, unverified=True)
    assert trusting.name_of(token(email_verified=None)) == "ana"
    for said in (False, "false", "true", 0):
        with pytest.raises(Unauthenticated):
            trusting.name_of(token(email_verified=said))
    other = Issuer(issuer=ISSUER, audience=HERE, keys=issuer.keys, claim="sub")
    assert other.name_of(token(sub="ana", email_verified=None)) == "ana"


def test_a_provider_that_does_not_answer_is_not_asked_for_each_token(monkeypatch):
    """Neither for keys nor for its description; some seconds later it is asked again."""
    asked, clock = [], [100.0]

    def fetched(where):
        asked.append(where)
        raise OSError

    monkeypatch.setattr(oidc, "fetched", fetched)
    monkeypatch.setattr(oidc.time, "monotonic", lambda: clock[0])
    issuer = Issuer(issuer=ISSUER, audience=HERE, keys="https://id.example/keys")
    way = oidc.SignIn(issuer=issuer, client="c")
    for wanted in (2, 2, 2, 4):
        clock[0] += 11 if wanted == 4 else 1
        for ask in (lambda: issuer.name_of(token()), lambda: way.address("m", "b")):
            with pytest.raises(OperatorError):
                ask()
        assert len(asked) == wanted


def test_keys_that_cannot_be_read_are_the_operators_matter(tmp_path):
    with pytest.raises(OperatorError):
        Issuer(issuer=ISSUER, audience=HERE, keys=str(tmp_path / "none.json")).name_of(token())


def test_settings_are_all_there_or_none(tmp_path):
    assert Serving.chosen().issuer is None
    made = Serving.chosen(oidc_issuer=ISSUER, oidc_audience=HERE, oidc_keys="keys.json").issuer
    assert (made.issuer, made.claim, made.unverified) == (ISSUER, "email", False)
    with pytest.raises(Exception, match="oidc_keys"):
        Serving.chosen(oidc_issuer=ISSUER).issuer  # noqa: B018 - a property
