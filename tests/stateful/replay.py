"""A ledger recomputed from its tables alone, by other code than the ledger's own.

Reads what is stored, with no lock and no help from noisegate, and adds up from the first entry:
hashes, charges at every moment, one reservation and one answer for each request, balances.
"""

import json
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg

ENTRIES = "SELECT seq, kind, at, body, previous_hash, hash FROM {0}entries ORDER BY seq"
ANSWERS = "SELECT seq, answer FROM {0}answers"
ACCOUNTS = "SELECT name, spent_amount, spent_delta, reservations, unsettled FROM {0}accounts"


@dataclass
class Request:
    """What the log says of one request: ``charges`` by account, and the answer if there is one."""

    use: str
    question: str
    charges: dict
    answer: bytes | None = None
    settled: bool = False


@dataclass
class Replay:
    """All requests of a log, its balances, and whatever is wrong with it."""

    requests: dict = field(default_factory=dict)
    spent: Counter = field(default_factory=Counter)  # (account, 0 for ε or 1 for δ) -> grains
    problems: list = field(default_factory=list)


def tables(address):
    """The entries, answers and balances that are stored under an address."""
    if not address.startswith("postgres"):
        connection = sqlite3.connect(f"file:{address}?mode=ro", uri=True)
        place = ""
    else:
        parts = urlsplit(address)
        words = dict(parse_qsl(parts.query))
        place = words.pop("schema") + "."
        connection = psycopg.connect(urlunsplit(parts._replace(query=urlencode(words))))
    try:
        asked = (ENTRIES, ANSWERS, ACCOUNTS)
        return [connection.execute(sql.format(place)).fetchall() for sql in asked]
    finally:
        connection.close()


def replay(address, limit):
    """Add up everything again; ``limit`` in grains is what no account may pass, at any moment."""
    entries, answers, accounts = tables(address)
    answers = {seq: bytes(answer) for seq, answer in answers}
    found, last = Replay(), "0" * 64
    for place, (seq, kind, at, body, previous, seal) in enumerate(entries):
        text = f"{previous}\n{seq}\n{kind}\n{at}\n{body}"
        if (seq, previous, seal) != (place, last, sha256(text.encode()).hexdigest()):
            found.problems.append(f"entry {seq} breaks the chain")
        last = seal
        _take(found, kind, json.loads(body), answers.get(seq))
        found.problems += [f"entry {seq} passes a limit" for n in found.spent.values() if n > limit]
    counts = Counter(request.settled for request in found.requests.values())
    for name, amount, delta, reservations, unsettled in accounts:
        stored = int(amount), int(delta)
        if stored != (found.spent[name, 0], found.spent[name, 1]):
            found.problems.append(f"the balance of {name} is not what was charged")
        if (reservations, unsettled) != (counts.total(), counts[False]):
            found.problems.append(f"the requests of {name} are not those of the log")
    return found


def _take(found, kind, body, answer):
    name = body.get("request")
    if kind == "reserve":
        if name in found.requests:
            found.problems.append(f"{name} is reserved twice")
        found.requests[name] = Request(body["use"], body["question"], body["charges"])
        _charge(found, body["charges"], 1)
    elif kind in ("settle", "close"):
        request = found.requests[name]
        if request.settled or (kind == "close") != (request.use == "allowance"):
            found.problems.append(f"{name} is settled twice, or as what it is not")
        if answer is None or sha256(answer).hexdigest() != body["answer"]:
            found.problems.append(f"the answer of {name} is not the one in the log")
        request.answer, request.settled = answer, True
        if kind == "close":
            _charge(found, request.charges, -1)
            _charge(found, body["charges"], 1)
            if any(int(n) > int(request.charges[a][k])
                   for a, pair in body["charges"].items() for k, n in enumerate(pair)):  # fmt: skip
                found.problems.append(f"{name} used more than it reserved")
            request.charges = body["charges"]


def _charge(found, charges, sign):
    for account, pair in charges.items():
        for place, grains in enumerate(pair):
            found.spent[account, place] += sign * int(grains)
