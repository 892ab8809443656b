"""Whatever bytes arrive, the server says what is wrong, or hangs up, and goes on serving."""

import socket
import ssl
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wires import Raw, errors, fields, message, rows, startup

from noisegate.server.wire import messages
from noisegate.server.wire.connection import Limits
from noisegate.server.wire.messages import Malformed

SSL = struct.pack("!II", 8, 80877103)
CANCEL = struct.pack("!II", 16, 80877102)
PARSE = message(b"P", b"\0SELECT 1\0\0\0")
SYNC = message(b"S")


def sized(body, length=None):
    return struct.pack("!I", len(body) + 4 if length is None else length) + body


def sasl(data, name=b"SCRAM-SHA-256\0", length=None):
    return message(b"p", name + struct.pack("!i", len(data) if length is None else length) + data)


def bind(values=b"\0\0", formats=b"\0\0", results=b"\0\0", name=b"\0\0"):
    return message(b"B", name + formats + values + results)


V3 = struct.pack("!I", 3 << 16)
FIRST = {  # bytes before anybody is recognised
    "length 0": sized(b"", 0),
    "length 3": sized(b"", 3),
    "length 7": sized(V3[:3]),
    "negative length": sized(V3, 0xFFFFFFFF),
    "a gigabyte": sized(V3, 1 << 30),
    "protocol 2": startup(2 << 16, user="ana"),
    "an unknown code": sized(struct.pack("!I", 80877199)),
    "a text without end": sized(V3 + b"user\0ana"),
    "a name without value": sized(V3 + b"user\0"),
    "no end of settings": sized(V3 + b"user\0ana\0"),
    "bytes after the end": sized(V3 + b"user\0ana\0\0xyz"),
    "not UTF-8": sized(V3 + b"user\0\xff\xfe\0\0"),
    "a setting twice": sized(V3 + b"user\0a\0user\0b\0\0"),
    "a long SSLRequest": sized(struct.pack("!II", 80877103, 1)),
    "SSLRequest twice": None,
    "a short cancel": sized(struct.pack("!II", 80877102, 1)),
    "a long cancel": sized(struct.pack("!IIII", 80877102, 1, 2, 3)),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}
PROOFS = {  # instead of a proof
    "a query": message(b"Q", b"SELECT 1\0"),
    "an unknown way": sasl(b"n,,n=,r=abc", b"PLAIN\0"),
    "a name without end": message(b"p", b"SCRAM-SHA-256"),
    "a negative length": sasl(b"", length=-5),
    "a length beyond the end": sasl(b"n,,n=,r=abc", length=900),
    "no SCRAM": sasl(b"\xff\xff\xff"),
    "channel binding": sasl(b"p=tls-unique,,n=,r=abc"),
    "an extension that must be known": sasl(b"n,,m=x,n=,r=abc"),
    "an empty nonce": sasl(b"n,,n=,r="),
    "a plain password": message(b"p", b"secret\0"),
    "a message of a megabyte": b"p" + struct.pack("!I", 1 << 20) + b"x" * 8,
}
LOST = {  # after which nobody knows where the next message begins
    "length 3": b"Q" + struct.pack("!I", 3),
    "length 0": b"Q" + struct.pack("!I", 0),
    "negative length": b"Q" + struct.pack("!I", 0xFFFFFFFF),
    "a gigabyte": b"Q" + struct.pack("!I", 1 << 30),
    "an unknown kind": message(b"?", b"x"),
    "a kind of the server's": message(b"Z", b"I"),
    "kind 0": message(b"\0"),
}
WRONG = {  # SQLSTATE, and what is whole but wrong
    "a query without end": ("08P01", message(b"Q", b"SELECT 1")),
    "a query that is not UTF-8": ("22021", message(b"Q", b"SELECT '\xff'\0")),
    "bytes after a query": ("08P01", message(b"Q", b"SELECT 1\0\0\0")),
    "an empty Parse": ("08P01", message(b"P")),
    "types that are missing": ("08P01", message(b"P", b"\0SELECT 1\0\0\5\0\0")),
    "a statement of two": ("0A000", message(b"P", b"\0SELECT 1; SELECT 2\0\0\0")),
    "a cut off Bind": ("08P01", PARSE + message(b"B", b"\0\0\0")),
    "an unknown statement": ("26000", bind(name=b"\0nope\0")),
    "a negative value": ("08P01", PARSE + bind(b"\0\1" + struct.pack("!i", -5))),
    "a value beyond the end": ("08P01", PARSE + bind(b"\0\1" + struct.pack("!i", 500))),
    "65,535 values": ("08P01", PARSE + bind(b"\xff\xff")),
    "a format that is none": ("08P01", PARSE + bind(formats=b"\0\1\0\7")),
    "a value too many": ("08P01", PARSE + bind(b"\0\1" + struct.pack("!i", -1))),
    "formats for no columns": (
        "08P01",
        PARSE + bind(results=b"\0\3" + bytes(6)) + message(b"E", b"\0\0\0\0\0"),
    ),
    "a Describe of nothing": ("08P01", message(b"D", b"X\0")),
    "a Describe without a name": ("08P01", message(b"D")),
    "an unknown portal": ("34000", message(b"E", b"nope\0\0\0\0\0")),
    "a cut off Execute": ("08P01", message(b"E", b"\0\0")),
    "a Close of nothing": ("08P01", message(b"C", b"Q\0")),
    "a Flush with bytes": ("08P01", message(b"H", b"x")),
    "a function call": ("0A000", message(b"F", b"\0\0\0\1")),
    "a second proof": ("08P01", sasl(b"n,,n=,r=abc")),
    "no number": (
        "22P02",
        message(b"P", b"\0SELECT $1::int\0\0\0") + bind(b"\0\1" + struct.pack("!i", 2) + b"xx"),
    ),
    "a number of three bytes": (
        "22P02",
        message(b"P", b"\0SELECT $1::int\0\0\0")
        + bind(b"\0\1" + struct.pack("!i", 3) + b"xxx", formats=b"\0\1\0\1"),
    ),
    "NUL in a text": (
        "22P02",
        message(b"P", b"\0SELECT $1::text\0\0\0") + bind(b"\0\1" + struct.pack("!i", 1) + b"\0"),
    ),
    "an unknown type": (
        "0A000",
        message(b"P", b"\0SELECT $1\0\0\1" + struct.pack("!I", 999999)) + bind(b"\0\0"),
    ),
}


def is_served(wire):
    with Raw(wire) as client:
        return rows(client.query("SELECT 1")) == [("1",)]


def test_there_are_two_dozen_kinds_and_more():
    assert len({*FIRST} | {*PROOFS} | {*LOST} | {*WRONG}) >= 48


@pytest.mark.parametrize("kind", FIRST)
def test_a_malformed_first_message_ends_the_connection(wire, kind):
    data = FIRST[kind]
    with Raw(wire, greet=False) as client:
        if data is None:
            client.send(struct.pack("!II", 8, 80877104))  # GSS, which is answered in the clear
            assert client.exactly(1) == b"N"
            data = struct.pack("!II", 8, 80877104)
        client.send(data)
        client.socket.shutdown(socket.SHUT_WR)
        found = client.rest()
    assert all(kind == b"E" and fields(body)["S"] == "FATAL" for kind, body in found)
    assert is_served(wire)


@pytest.mark.parametrize("kind", PROOFS)
def test_whatever_is_no_proof_lets_nobody_in(wire, kind):
    with Raw(wire, greet=False) as client:
        client.send(startup(user="ana", database="clinic"))
        client.next()
        client.send(PROOFS[kind])
        client.socket.shutdown(socket.SHUT_WR)
        found = client.rest()
    assert [k for k, _ in found] in ([b"E"], [])
    assert set(errors(found)) <= {"28P01", "08P01"}
    assert is_served(wire)


@pytest.mark.parametrize("kind", LOST)
def test_a_stream_that_is_lost_is_closed(wire, kind):
    with Raw(wire) as client:
        client.send(LOST[kind])
        found = client.rest()
    assert errors(found) == ["08P01"]
    assert fields(found[0][1])["S"] == "FATAL"
    assert is_served(wire)


@pytest.mark.parametrize("kind", WRONG)
def test_a_whole_message_that_is_wrong_leaves_the_session(wire, kind):
    state, data = WRONG[kind]
    with Raw(wire) as client:
        client.send(data)
        found = client.until(b"E")
        assert errors(found) == [state]
        assert fields(found[-1][1])["S"] == "ERROR"
        if data[:1] == b"Q":
            client.until()
        client.send(SYNC)
        assert client.until()[-1] == (b"Z", b"I")
        assert rows(client.query("SELECT 2")) == [("2",)]


def test_after_an_error_all_is_skipped_up_to_sync(wire):
    with Raw(wire) as client:
        client.send(message(b"E", b"nope\0\0\0\0\0"), PARSE, bind(), message(b"E", bytes(5)), SYNC)
        assert [kind for kind, _ in client.until()] == [b"E", b"Z"]


def test_data_of_a_copy_that_nobody_waits_for_is_dropped(wire):
    with Raw(wire) as client:
        client.send(message(b"d", b"1\t2\n"), message(b"c"), message(b"f", b"no\0"))
        assert rows(client.query("SELECT 3")) == [("3",)]


def test_an_empty_query_is_answered(wire):
    with Raw(wire) as client:
        assert [kind for kind, _ in client.query("")] == [b"I", b"Z"]
        assert [kind for kind, _ in client.query(" ; -- nothing\n")] == [b"I", b"Z"]


def test_what_was_sent_before_tls_is_not_taken_for_a_message(wire):
    """CVE-2021-23214: bytes in the clear behind the request for TLS."""
    with Raw(wire, greet=False) as client:
        client.send(SSL + startup(user="ana", database="clinic"))
        found = client.rest()
    assert errors(found) == ["08P01"]
    assert is_served(wire)


def test_garbage_instead_of_a_tls_handshake_is_survived(wire):
    with Raw(wire, greet=False) as client:
        client.send(SSL)
        assert client.exactly(1) == b"S"
        client.send(b"\x16\x03\x01" + b"\xff" * 400)
        client.socket.shutdown(socket.SHUT_WR)
        assert not any(kind == b"R" for kind, _ in client.rest())
    assert is_served(wire)


def test_tls_carries_a_session(wire):
    trusted = ssl.create_default_context(cafile=str(wire.certificate[0]))
    with Raw(wire, greet=False) as client:
        client.send(SSL)
        assert client.exactly(1) == b"S"
        client.socket = trusted.wrap_socket(client.socket, server_hostname="localhost")
        client.greet()
        assert rows(client.query("SELECT 4")) == [("4",)]


def test_a_newer_protocol_is_answered_with_ours(wire):
    with Raw(wire, greet=False) as client:
        client.send(startup((3 << 16) + 2, user="ana", database="clinic", _pq__x="1"))
        kind, body = client.next()
        assert (kind, body[:4]) == (b"v", V3)


def test_who_says_nothing_is_let_go(wire):
    limits = Limits(startup=0.3, idle=0.3, slow=0.3)
    port = wire.listen(limits=limits)
    begun = time.monotonic()
    with Raw(wire, port=port, greet=False) as silent:
        assert silent.rest() == []  # no first message
    with Raw(wire, port=port, greet=False) as half:
        half.send(startup(user="ana", database="clinic")[:9])
        assert half.rest() == []  # half of one
    with Raw(wire, port=port, greet=False) as slow:
        slow.send(startup(user="ana", database="clinic"))
        slow.next()
        assert slow.rest() == []  # no proof
    with Raw(wire, port=port) as idle:
        assert idle.rest() == []  # no question
    with Raw(wire, port=port) as cut:
        cut.send(b"Q" + struct.pack("!I", 100) + b"SELECT")
        assert cut.rest() == []  # half of one
    assert time.monotonic() - begun < 8


def test_a_person_has_so_many_connections_and_all_have_so_many(wire):
    port = wire.listen(limits=Limits(per_person=2, connections=3))
    with Raw(wire, port=port), Raw(wire, port=port):
        with Raw(wire, port=port, greet=False) as third:
            third.send(startup(user="ana", database="clinic"))
            third.next()
            third.prove(wire.tokens["ana"])
            assert errors(third.rest()) == ["53300"]
        with Raw(wire, "ben", port=port), Raw(wire, "ben", port=port, greet=False) as fourth:
            fourth.send(startup(user="ben", database="clinic"))
            assert errors(fourth.rest()) == ["53300"]


def test_a_session_holds_so_many_statements(wire):
    port = wire.listen(limits=Limits(statements=3, portals=2))
    with Raw(wire, port=port) as client:
        for name in (b"a", b"b", b"c"):
            client.send(message(b"P", name + b"\0SELECT 1\0\0\0"))
        client.send(message(b"P", b"d\0SELECT 1\0\0\0"), SYNC)
        assert errors(client.until()) == ["54000"]
        for name in (b"x", b"y", b"z"):
            client.send(message(b"B", name + b"\0a\0\0\0\0\0\0\0"))
        client.send(SYNC)
        assert errors(client.until()) == ["54000"]


def test_a_question_longer_than_the_limit_is_not_read(wire):
    port = wire.listen(limits=Limits(message=1000))
    with Raw(wire, port=port) as client:
        client.send(message(b"Q", b"SELECT '" + b"x" * 2000 + b"'\0"))
        assert errors(client.rest()) == ["08P01"]


def is_read(reading, *data):
    """Whether bytes are a message; if not, they are refused as such, with a state."""
    try:
        return reading(*data) is not None
    except Malformed as refused:
        return len(refused.state) == 5


@given(st.sampled_from([bytes([each]) for each in messages.KINDS]), st.binary(max_size=60))
def test_reading_is_total(kind, data):
    assert is_read(messages.read, kind, data)


@given(st.sampled_from([b"", V3, SSL[4:], CANCEL[4:8]]), st.binary(max_size=60))
def test_reading_a_first_message_is_total(code, data):
    assert is_read(messages.read_first, code + data)
