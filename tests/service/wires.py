"""A server for Postgres clients in a thread of its own, and a client that speaks in raw bytes."""

import asyncio
import base64
import datetime as dt
import hashlib
import hmac
import shutil
import socket
import ssl
import struct
import tempfile
from pathlib import Path
from threading import Thread

from clinics import clinic_in
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from noisegate.server.service import Service
from noisegate.server.settings import Settings
from noisegate.server.wire.serving import listening

HOST = "127.0.0.1"
SALTED = {}
QUICK = Settings(quantum=0)


class Wire:
    """The clinic with a large budget for ana, 1 for ben, and a steward; TLS for whoever asks."""

    def __init__(self, *policies, settings=QUICK):
        self.folder = Path(tempfile.mkdtemp(prefix="ngwire"))
        policy = clinic_in(self.folder)
        text = policy.read_text()
        text = text.replace("epsilon = 4", "epsilon = 5000").replace("ana = 2", "ana = 4000")
        text = text.replace("max_epsilon = 1", "max_epsilon = 1000")
        policy.write_text(text)
        self.service = Service([policy, *policies], settings=settings)
        people = self.service.people
        for name, role in (("ana", "analyst"), ("ben", "analyst"), ("sam", "steward")):
            people.add(name, role)
        self.tokens = {each.name: people.new_token(each.name) for each in people.everybody()}
        self.certificate = certificate(self.folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.certificate)
        self.loop = asyncio.new_event_loop()
        self.thread = Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.servers = []
        self.port = self.listen(tls=context)

    def listen(self, **terms):
        """Another server of the same service; its port."""
        made = listening(self.service, HOST, 0, **terms)
        server, _ = asyncio.run_coroutine_threadsafe(made, self.loop).result(20)
        self.servers.append(server)
        return server.sockets[0].getsockname()[1]

    def dsn(self, name="ana", **more):
        """How libpq is told where to connect."""
        said = {"host": HOST, "port": self.port, "dbname": "clinic", "user": name}
        said |= {"password": self.tokens[name], "connect_timeout": 10, **more}
        return " ".join(f"{key}='{value}'" for key, value in said.items())

    def url(self, name="ana", driver="postgresql"):
        return f"{driver}://{name}:{self.tokens[name]}@{HOST}:{self.port}/clinic"

    def view(self, name="ana", dataset="clinic"):
        return self.service.view(self.service.people.by_token(self.tokens[name]), dataset)

    def gate(self, name="ana", dataset="clinic"):
        return self.view(name, dataset).gate

    def left(self, name="ana"):
        """What is left of a budget, exactly."""
        return self.gate(name).remaining.epsilon

    def stop(self):
        asyncio.run_coroutine_threadsafe(self._close(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()
        self.service.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _close(self):
        for server in self.servers:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def certificate(folder):
    """A certificate for this machine, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert, secret = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert, secret


def startup(code=3 << 16, **said):
    body = struct.pack("!I", code)
    body += b"".join(f"{k}\0{v}\0".encode() for k, v in said.items()) + b"\0"
    return struct.pack("!I", len(body) + 4) + body


def message(kind, body=b""):
    return kind + struct.pack("!I", len(body) + 4) + body


class Raw:
    """A client that sends whatever bytes it is told to."""

    def __init__(self, wire, name="ana", *, port=None, greet=True):
        self.wire, self.name = wire, name
        self.socket = socket.create_connection((HOST, port or wire.port), timeout=10)
        self.key = None
        if greet:
            self.greet()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *data):
        self.socket.sendall(b"".join(data))

    def exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def next(self):
        """The next message: kind and body."""
        kind = self.exactly(1)
        return kind, self.exactly(struct.unpack("!I", self.exactly(4))[0] - 4)

    def until(self, last=b"Z"):
        """All messages up to one of this kind."""
        found = []
        while not found or found[-1][0] != last:
            found.append(self.next())
        return found

    def rest(self):
        """All messages until the server closes."""
        found = []
        try:
            while True:
                found.append(self.next())
        except (EOFError, ConnectionError):
            return found

    def greet(self, token=None, database="clinic", **said):
        """Start up and authenticate."""
        self.send(startup(user=self.name, database=database, **said))
        assert self.next()[1][:4] == struct.pack("!I", 10)
        self.prove(token or self.wire.tokens[self.name])
        found = self.until()
        self.key = next(body for kind, body in found if kind == b"K")
        return found

    def prove(self, token, nonce="rOprNGfwEbeRWgbNEkqO"):
        """SCRAM, the client's side; raises EOFError where the server ends it."""
        bare = f"n=,r={nonce}".encode()
        data = b"n,," + bare
        self.send(message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!I", len(data)) + data))
        _, body = self.next()
        assert body[:4] == struct.pack("!I", 11), body
        server = body[4:]
        said = dict(part.split(b"=", 1) for part in server.split(b","))
        salt, rounds = base64.b64decode(said[b"s"]), int(said[b"i"])
        place = (token, salt, rounds)
        if place not in SALTED:
            SALTED[place] = hashlib.pbkdf2_hmac("sha256", token.encode(), salt, rounds)
        client = hmac.digest(SALTED[place], b"Client Key", "sha256")
        last = b"c=biws,r=" + said[b"r"]
        signed = hmac.digest(
            hashlib.sha256(client).digest(), b",".join([bare, server, last]), "sha256"
        )
        proof = bytes(a ^ b for a, b in zip(client, signed, strict=True))
        self.send(message(b"p", last + b",p=" + base64.b64encode(proof)))
        return salt, rounds

    def query(self, sql):
        self.send(message(b"Q", sql.encode() + b"\0"))
        return self.until()


def fields(body):
    """The fields of an error or a notice."""
    return {part[:1].decode(): part[1:].decode() for part in body.split(b"\0") if part}


def errors(found):
    """The SQLSTATE of each error among messages."""
    return [fields(body)["C"] for kind, body in found if kind == b"E"]


def rows(found):
    """The rows among messages, as text."""
    made = []
    for kind, body in found:
        if kind == b"D":
            (count,), at, row = struct.unpack_from("!H", body), 2, []
            for _ in range(count):
                (length,) = struct.unpack_from("!i", body, at)
                at += 4
                row.append(None if length < 0 else body[at : at + length].decode())
                at += max(0, length)
            made.append(tuple(row))
    return made
