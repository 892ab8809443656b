"""Starting a service: choices, TLS, people, the demonstration, and an end that finishes its work."""

import logging
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import noisegate
from noisegate.cli import main
from noisegate.errors import OperatorError, SpecError
from noisegate.server.people import People
from noisegate.server.serve import Serving, in_public_terms
from noisegate.server.store import Store
from refusals import about


@pytest.fixture
def certificate(tmp_path):
    """One for this machine, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "cert.pem").write_bytes(made.public_bytes(pem))
    (tmp_path / "key.pem").write_bytes(key.private_bytes(pem, pkcs8, plain))
    return tmp_path / "cert.pem", tmp_path / "key.pem"


# choices


def test_a_choice_is_taken_from_the_nearest_place(tmp_path, monkeypatch):
    file = tmp_path / "service.toml"
    file.write_text('port = 1\nworkers = 3\nquantum = 1\npolicies = ["a.toml"]\nhost = "::1"')
    monkeypatch.setenv("NOISEGATE_PORT", "2")
    monkeypatch.setenv("NOISEGATE_WORKERS", "4")
    monkeypatch.setenv("NOISEGATE_APPROVE_ABOVE", "1/2")
    found = Serving.chosen(file, port=3, quantum=0.0, state=None, policies=[])
    assert (found.port, found.workers, found.quantum, found.host) == (3, 4, 0.0, "::1")
    assert found.policies == (tmp_path / "a.toml",)
    assert found.settings.approve_above == Fraction(1, 2)
    monkeypatch.setenv("NOISEGATE_POLICIES", os.pathsep.join(["b.toml", "c.toml"]))
    assert Serving.chosen(file).policies == (Path("b.toml"), Path("c.toml"))


@pytest.mark.parametrize(
    "text", ["prot = 1", "port = 'x'", "port = 70000", "workers = 0", "quantum = -1", "["]
)
def test_settings_that_cannot_be_meant_are_refused(tmp_path, text):
    (tmp_path / "service.toml").write_text(text)
    with pytest.raises(SpecError):
        Serving.chosen(tmp_path / "service.toml")


def test_tokens_never_cross_a_network_in_the_clear(certificate):
    cert, key = certificate
    for host in ("0.0.0.0", "::", "gate.example.org", "192.0.2.1"):
        with pytest.raises(SpecError, check=about("clear")):
            Serving.chosen(host=host)
        assert Serving.chosen(host=host, behind_proxy=True).tls is None
        assert Serving.chosen(host=host, tls_cert=cert, tls_key=key).tls is not None
    with pytest.raises(SpecError, check=about("tls")):
        Serving.chosen(tls_cert=cert)
    with pytest.raises(OperatorError, check=about("tls")):
        _ = Serving.chosen(tls_cert=cert, tls_key=cert).tls


# processes


@contextmanager
def started(*options, folder):
    """`noisegate serve` as a process; gives it, its address, and its tokens."""
    command = [sys.executable, "-m", "noisegate", "serve", "--port", "0", *map(str, options)]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    clock = threading.Timer(40, process.kill)
    clock.start()
    try:
        said = []
        while not said or not said[-1].startswith("serving "):
            line = process.stdout.readline()
            assert line, said
            said.append(line.rstrip("\n"))
        tokens = dict(line.split()[1:] for line in said if line.startswith("token "))
        yield process, said[-1].split()[-1], tokens
    finally:
        clock.cancel()
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_demonstration_serves_a_clinic_and_ends_well(tmp_path):
    with started("--demo", folder=tmp_path) as (process, url, tokens):
        assert list(tokens) == ["steward", "ana", "auditor"]
        gate = noisegate.connect(url, token=tokens["ana"])
        assert gate.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1).cost.epsilon == 1
        assert noisegate.connect(url, token=tokens["auditor"]).head.seq > 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (0, -signal.SIGTERM)
    assert list(tmp_path.iterdir()) == []


def test_a_question_that_is_being_worked_on_is_finished(clinic):
    state = clinic.parent / "state.db"
    with closing(Store(state)) as store:
        people = People(store)
        people.add("ana", "analyst")
        token = people.new_token("ana")
    order = {"kind": "sql", "sql": "SELECT COUNT(*) AS n FROM visits", "epsilon": "0.5"}
    with started(clinic, "--state", state, "--quantum", 2, folder=clinic.parent) as (
        process,
        url,
        _,
    ):
        found = {}

        def ask():
            headers = {"Authorization": f"Bearer {token}", "Prefer": "wait=30"}
            found["reply"] = httpx.post(
                f"{url}/datasets/clinic/orders", json=order, headers=headers, timeout=40
            )

        asking = threading.Thread(target=ask)
        asking.start()
        while not httpx.get(f"{url}/history", headers={"Authorization": f"Bearer {token}"}).json()[
            "runs"
        ]:
            pass
        process.send_signal(signal.SIGTERM)
        asking.join(40)
        assert found["reply"].status_code == 200
        assert found["reply"].json()["price"] > 0
        assert process.wait(20) in (0, -signal.SIGTERM)


def test_tls_is_spoken(clinic, certificate):
    cert, key = certificate
    with started(clinic, "--tls-cert", cert, "--tls-key", key, folder=clinic.parent) as (_, url, _):
        assert url.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(cert))
        with httpx.Client(verify=trusting) as client:
            assert client.get(f"{url}/health").json() == {"status": "ok"}
        with pytest.raises(OperatorError, check=about("unreachable")):
            noisegate.connect(url, token="ng_x_y")
        with pytest.raises(noisegate.NoisegateError, match="wrong, expired or revoked"):
            noisegate.connect(url, token="ng_x_y", cafile=str(cert))


def test_nothing_is_served_without_a_policy(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["noisegate", "serve"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "--demo" in capsys.readouterr().err


def test_people_are_added_listed_and_disabled(tmp_path, monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr(
            sys, "argv", ["noisegate", "people", *words, "--state", str(tmp_path / "s.db")]
        )
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr()

    assert run("add", "ana", "analyst")[0] == 0
    assert run("add", "ana", "analyst")[0] == 2
    assert run("add", "eve", "king")[0] == 2
    code, said = run(
        "token", "ana", "--label", "laptop", "--epsilon-hour", "1", "--dataset", "clinic"
    )
    assert code == 0
    token = said.out.split()[-1]
    assert re.fullmatch(r"ng_[0-9a-f]+_[\w-]{43}", token)
    shown = run("list")[1].out
    assert "laptop" in shown
    assert token.split("_")[2] not in shown
    assert run("revoke", token.split("_")[1])[0] == 0
    assert run("revoke", "nope")[0] == 2
    assert run("disable", "ana")[0] == 0


def test_what_went_wrong_is_logged_without_its_words(caplog):
    log = logging.getLogger("uvicorn.error")
    log.addFilter(in_public_terms)
    try:
        try:
            int("patient 4711")
        except ValueError:
            log.exception("Exception in ASGI application")
        log.warning("Invalid HTTP request received.")
    finally:
        log.removeFilter(in_public_terms)
    assert "4711" not in caplog.text
    assert "ValueError" in caplog.text
    assert "Invalid HTTP request" in caplog.text


def test_a_port_that_is_taken_is_said(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ["serve", "--demo", "--port", str(taken.getsockname()[1])]
        found = subprocess.run(
            [sys.executable, "-m", "noisegate", *words], cwd=tmp_path, capture_output=True,
            text=True, timeout=30, check=False,
        )  # fmt: skip
    assert found.returncode
    assert "address already in use" in found.stderr
    assert "serving" not in found.stdout
