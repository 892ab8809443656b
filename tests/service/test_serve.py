"""Starting a service: choices, TLS, people, the demonstration, and an end that finishes its work."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from ipaddress import ip_address
from pathlib import Path

import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import noisegate
from noisegate.cli import main
from noisegate.errors import OperatorError, SpecError, Unauthenticated
from noisegate.privacy.loss import ApproxDP
from noisegate.server.serve import Serving, in_public_terms, serve
from refusals import about


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """One for this machine, signed by itself, and its key."""
    tmp_path = tmp_path_factory.mktemp("certificate")
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


# a process, which the last of these tests ends

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    PG_PORT = free.getsockname()[1]


@pytest.fixture(scope="module")
def demo(tmp_path_factory, certificate):
    """`noisegate serve --demo` over TLS: the process, its folder, its address, its tokens."""
    folder, (cert, key) = tmp_path_factory.mktemp("demo"), certificate
    options = ["--port", "0", "--quantum", "1", "--tls-cert", cert, "--tls-key", key]
    options += ["--pg-port", PG_PORT]
    process = subprocess.Popen(
        [sys.executable, "-m", "noisegate", "serve", "--demo", *map(str, options)],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip
    clock = threading.Timer(60, process.kill)
    clock.start()
    try:
        said = []
        while not said or not said[-1].startswith("serving "):
            line = process.stdout.readline()
            assert line, said
            said.append(line.rstrip("\n"))
        tokens = dict(line.split()[1:] for line in said if line.startswith("token "))
        yield process, folder, said[-1].split()[-1], tokens
    finally:
        clock.cancel()
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_demonstration_serves_a_clinic(demo, certificate):
    _, _, url, tokens = demo
    cert = str(certificate[0])
    assert list(tokens) == ["steward", "ana", "auditor"]
    gate = noisegate.connect(url, token=tokens["ana"], cafile=cert)
    assert gate.plan("SELECT COUNT(*) AS n FROM visits", epsilon=1).fits
    assert noisegate.connect(url, token=tokens["auditor"], cafile=cert).head.seq >= 0


def test_tls_is_spoken_with_those_who_trust_it(demo, certificate):
    url = demo[2]
    assert url.startswith("https://")
    with pytest.raises(OperatorError, check=about("unreachable")):
        noisegate.connect(url, token="ng_x_y")
    with pytest.raises(Unauthenticated):
        noisegate.connect(url, token="ng_x_y", cafile=str(certificate[0]))


def test_a_question_that_is_being_worked_on_is_finished(demo, certificate):
    """It is held for a second by the ladder of times; the end comes in between."""
    process, folder, url, tokens = demo
    found = {}

    def ask():
        gate = noisegate.connect(url, token=tokens["ana"], cafile=str(certificate[0]))
        found["http"] = gate.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1).cost

    def ask_over_the_wire():
        told = {"host": "127.0.0.1", "port": PG_PORT, "user": "ana", "dbname": "clinic"}
        with psycopg.connect(**told, password=tokens["ana"], autocommit=True) as client:
            client.execute("SET noisegate.epsilon = 1")
            question = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
            found["wire"] = len(client.execute(question).fetchall())

    asking = [threading.Thread(target=each) for each in (ask, ask_over_the_wire)]
    for each in asking:
        each.start()
    watching = noisegate.connect(url, token=tokens["ana"], cafile=str(certificate[0]))
    while len(watching.history()) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    for each in asking:
        each.join(40)
    assert found == {"http": ApproxDP(1), "wire": 4}
    del watching  # an idle connection over TLS is waited for, at most half a minute
    assert process.wait(20) == 0
    assert list(folder.iterdir()) == [], "nothing of the made-up clinic is left behind"


def test_nothing_is_served_without_a_policy(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["noisegate", "serve"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "--demo" in capsys.readouterr().err


def test_what_went_wrong_is_logged_without_its_words(caplog):
    log = logging.getLogger("uvicorn.error")
    caplog.set_level(logging.WARNING, logger=log.name)  # others may have set it higher
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


def test_a_port_that_is_taken_is_said(service, caplog):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        serving = Serving.chosen(port=taken.getsockname()[1])
        said = []
        with pytest.raises(SystemExit):
            serve(service, serving, started=said.append)
    assert "address already in use" in caplog.text
    assert said == []
