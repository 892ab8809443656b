"""Who gets in, who may stop what, and what somebody outside can learn."""

import asyncio
import base64
import struct
import time
from datetime import timedelta
from threading import Thread

import psycopg
import pytest
from wires import Raw, errors, fields, message, rows, startup

from noisegate.errors import SpecError
from noisegate.server.people import Scram
from noisegate.server.wire import scram
from noisegate.server.wire.serving import listening


def refused(wire, **said):
    with pytest.raises(psycopg.OperationalError) as found:
        psycopg.connect(wire.dsn(**said))
    return str(found.value)


def denied(wire, name, token):
    """What the server says step by step to somebody who is not let in."""
    with Raw(wire, name, greet=False) as client:
        client.send(startup(user=name, database="clinic"))
        begun = client.next()
        salt, rounds = client.prove(token)
        found = client.rest()
        return begun, len(salt), rounds, [fields(body) for _, body in found]


def test_a_wrong_token_and_a_wrong_name_look_the_same(wire):
    assert denied(wire, "ana", "ng_x_y") == denied(wire, "nobody", "ng_x_y")
    assert denied(wire, "nobody", wire.tokens["ana"])[3][0]["C"] == "28P01"


def test_a_name_that_nobody_has_keeps_its_salt(wire):
    salts = []
    for name in ("nobody", "nobody", "somebody"):
        with Raw(wire, name, greet=False) as client:
            client.send(startup(user=name))
            client.next()
            salts.append(client.prove("x")[0])
    assert salts[0] == salts[1] != salts[2]


def test_a_token_of_another_person_opens_nothing(wire):
    assert "wrong, expired or revoked" in refused(wire, password=wire.tokens["ben"])


def test_each_of_several_tokens_opens(wire):
    for _ in range(3):
        token = wire.service.people.new_token("ana")
        with psycopg.connect(wire.dsn(password=token)) as session:
            assert session.execute("SELECT current_user").fetchone() == ("ana",)


def test_an_expired_token_opens_nothing(wire):
    token = wire.service.people.new_token("ana", expires=timedelta(seconds=-1))
    assert "wrong, expired or revoked" in refused(wire, password=token)


def test_a_token_of_another_data_set_does_not_see_this_one(wire):
    token = wire.service.people.new_token("ana", datasets=["elsewhere"])
    assert "no such data set" in refused(wire, password=token)
    assert refused(wire, dbname="nowhere").replace("nowhere", "clinic") == refused(
        wire, password=token
    )


def test_without_a_name_the_only_data_set_is_meant(wire):
    with psycopg.connect(wire.dsn(dbname="ana")) as session:
        assert session.execute("SELECT current_database()").fetchone() == ("clinic",)


def test_a_token_that_is_revoked_ends_its_session(wire):
    token = wire.service.people.new_token("ana")
    caller = wire.service.people.by_token(token)
    with psycopg.connect(wire.dsn(password=token), autocommit=True) as session:
        session.execute("SELECT 1")
        wire.service.people.revoke(caller.token)
        before = wire.left()
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT COUNT(*) FROM visits /* noisegate: epsilon=0.1 */")
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT 1")
        assert wire.left() == before


def test_a_proof_cannot_be_replayed(wire):
    """The server's half of the nonce is new each time."""
    nonces = set()
    for _ in range(5):
        exchange = scram.Exchange(Scram(salt=b"salt", iterations=4096, keys=()))
        nonces.add(exchange.first(b"n,,n=,r=abc").split(b",")[0])
    assert len(nonces) == 5


@pytest.mark.parametrize(
    "data",
    [
        b"c=biws,r=other,p=AAAA",  # another nonce
        b"c=eSws,r={},p=AAAA",  # another header than was said
        b"c=biws,r={},p=",
        b"c=biws,r={},p=AAAA",  # a short proof
        b"c=biws,r={},p=!!!!",
        b"c=biws,r={}",
        b"",
    ],
)
def test_whatever_is_no_proof_is_denied(data):
    """As in RFC 7677, section 3, whose numbers the next test has."""
    exchange = scram.Exchange(
        Scram(salt=b"salt", iterations=4096, keys=((b"k" * 32, b"s" * 32, "t"),))
    )
    nonce = exchange.first(b"n,,n=,r=abc").split(b",")[0][2:]
    with pytest.raises(scram.Denied):
        exchange.final(data.replace(b"{}", nonce))


def test_the_exchange_of_the_standard_is_reproduced(monkeypatch):
    """RFC 7677, section 3: user "user", password "pencil"."""
    from noisegate.server.people import scram_keys

    monkeypatch.setattr(scram, "token_hex", lambda _: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    key = (*scram_keys("pencil", salt, 4096), "token")
    exchange = scram.Exchange(Scram(salt=salt, iterations=4096, keys=((b"x" * 32, b"", "no"), key)))
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    first = exchange.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == b"r=%s,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096" % nonce
    proof = b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    last = exchange.final(b"c=biws,r=%s,p=%s" % (nonce, proof))
    assert last == (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "token")


# cancelling


def eventually(holds):
    """Wait until it holds, but not for ever."""
    until = time.monotonic() + 8
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


class Slow:
    """A gate whose questions take until they are let go: real answers, later."""

    def __init__(self, monkeypatch):
        from noisegate.gate import Gate

        self.let_go, run = False, Gate.run

        def slowly(gate, order, **more):
            if "slowly" in getattr(order, "sql", ""):
                eventually(lambda: self.let_go)
            return run(gate, order, **more)

        monkeypatch.setattr(Gate, "run", slowly)


@pytest.fixture
def slow(wire, monkeypatch):
    made = Slow(monkeypatch)
    yield made
    made.let_go = True
    eventually(lambda: wire.service.queue.running + wire.service.queue.depth == 0)


SLOW = "SELECT COUNT(*) AS slowly FROM visits WHERE cost > {} /* noisegate: epsilon=0.1 */"


def cancel(wire, key):
    with Raw(wire, greet=False) as client:
        client.send(struct.pack("!II", 16, 80877102) + key)
        assert client.rest() == []  # nothing is said, whatever the key


def running(wire, count):
    eventually(lambda: wire.service.queue.running + wire.service.queue.depth >= count)


def test_a_cancel_stops_the_session_with_its_key_and_no_other(wire, slow):
    with Raw(wire) as one, Raw(wire) as other:
        one.send(message(b"Q", SLOW.format(1).encode() + b"\0"))
        other.send(message(b"Q", SLOW.format(2).encode() + b"\0"))
        running(wire, 2)
        cancel(wire, one.key)
        found = one.until()
        assert errors(found) == ["57014"]
        slow.let_go = True
        assert len(rows(other.until())) == 1
        assert rows(one.query("SELECT 1")) == [("1",)]


def test_a_key_that_is_guessed_stops_nothing(wire, slow):
    with Raw(wire) as client:
        client.send(message(b"Q", SLOW.format(3).encode() + b"\0"))
        running(wire, 1)
        process, secret = client.key[:4], client.key[4:]
        for wrong in (bytes(4), secret[::-1], bytes(byte ^ 1 for byte in secret)):
            if wrong != secret:
                cancel(wire, process + wrong)
        cancel(wire, b"\0\0\0\1" + secret)
        slow.let_go = True
        assert errors(client.until()) == []


def test_a_cancel_of_an_idle_session_does_nothing_to_its_next_question(wire):
    with Raw(wire) as client:
        cancel(wire, client.key)
        found = client.query("SELECT COUNT(*) AS n FROM visits /* noisegate: epsilon=0.1 */")
        assert errors(found) == []


def test_a_cancel_while_a_question_is_planned_is_not_lost(wire, slow, monkeypatch):
    from noisegate.gate import Gate

    plan, planning = Gate.plan, []

    def slowly(gate, order, **more):
        if "slowly" in order.sql and not planning:
            planning.append(order)
            time.sleep(0.5)
        return plan(gate, order, **more)

    monkeypatch.setattr(Gate, "plan", slowly)
    with Raw(wire) as client:
        client.send(message(b"Q", SLOW.format(6).encode() + b"\0"))
        while not planning:
            time.sleep(0.01)
        cancel(wire, client.key)
        assert errors(client.until()) == ["57014"]


def test_a_statement_has_a_time_limit_if_the_session_says_so(wire, slow):
    with psycopg.connect(wire.dsn(), autocommit=True) as session:
        session.execute("SET statement_timeout = 100")
        with pytest.raises(psycopg.errors.QueryCanceled):
            session.execute(SLOW.format(4))


def test_psycopg_cancels(wire, slow):
    with psycopg.connect(wire.dsn(), autocommit=True) as session:
        Thread(target=lambda: (running(wire, 1), session.cancel_safe(timeout=5))).start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            session.execute(SLOW.format(5))


def test_keys_are_random(wire):
    keys = set()
    for _ in range(4):
        with Raw(wire) as client:
            keys |= {client.key[:4], client.key[4:]}
    assert len(keys) == 8  # but for chance below 1e-7


# where it listens


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_without_tls_it_listens_on_this_machine_alone(wire, host):
    with pytest.raises(SpecError):
        asyncio.run(listening(wire.service, host, 0))


def test_tls_is_checked_by_libpq(wire):
    root = wire.certificate[0]
    said = {"host": "localhost", "hostaddr": "127.0.0.1"}
    with psycopg.connect(wire.dsn(sslmode="verify-full", sslrootcert=root, **said)) as session:
        assert session.pgconn.ssl_in_use
        assert session.execute("SELECT 1").fetchone() == (1,)


def test_a_server_without_a_certificate_says_so(wire):
    port = wire.listen()
    with pytest.raises(psycopg.OperationalError, match="SSL"):
        psycopg.connect(wire.dsn(port=port, sslmode="require"))
    with psycopg.connect(wire.dsn(port=port, sslmode="prefer")) as session:
        assert not session.pgconn.ssl_in_use
