"""Damaged files of releases and cards: refused, or the same; whoever seals a lie anew crashes nothing."""

import copy
import io
import json
import tempfile
import warnings
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from unittest.mock import patch
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from fuzz_ledgers import damaged
from fuzz_policies import at, places_in
from fuzz_target import Finding, NoisegateError, Target, Verdict, refused, shorter_lists
from hard_worlds import world

from noisegate.desk.card import Card, verify
from noisegate.desk.release import _SEAL, _sealed

ORDERS = {
    "table": ("histogram", {"table": "patients", "columns": {"age": 20, "sex": None}}),
    "tree": ("histogram", {"table": "patients", "columns": {"age": 1}, "method": "tree"}),
    "cube": ("cube", {"table": "patients", "columns": {"sex": None, "region": None}}),
    "boxplot": ("boxplot", {"table": "patients", "columns": {"weight": 10}}),
    "cdf": ("cdf", {"table": "patients", "columns": {"age": 5}}),
    "describe": ("describe", {"table": "patients", "columns": ["age", "sex"]}),
    "sparse": ("sparse", {"table": "patients", "columns": {"weight": 1}}),
    "synthetic": ("synthetic", {"table": "patients", "columns": ["sex", "smoker"]}),
    "crowd": ("crowd-histogram", {"table": "patients", "columns": {"sex": None}, "probability": "1/2", "delta": "1e-2"}),
}  # fmt: skip
VALUES = [None, 0, -1, 1, 1 << 63, 10**400, 1e308, 0.5, "", "x", "1/0", "nan", "1e999999", True, [], {}, [[]], [1, 2], {"a": 1}, "\0", "é" * 50, [None], "1/3", "-1", [0] * 40]  # fmt: skip


@cache
def gate():
    with always_the_same("gate"):
        return world("loose-rows").gate()


@contextmanager
def always_the_same(seed):
    """Noise, names and times by a seed: damage to a file is the same damage in each run."""
    random = Random(seed)
    chance = SimpleNamespace(urandom=random.randbytes, getpid=lambda: -1)  # -1: a key of its own
    with (
        patch("noisegate.noise.bits.os", chance),
        patch("noisegate.ledger.ledger.uuid4", lambda: UUID(int=random.getrandbits(128))),
        patch("noisegate.curator.curator.uuid4", lambda: UUID(int=random.getrandbits(128))),
        patch(
            "noisegate.ledger.rules.datetime",
            SimpleNamespace(now=lambda zone: datetime(2026, 1, 1, tzinfo=zone)),
        ),
    ):
        yield


@cache
def base(kind):
    """The bytes of a sound file, its class, and what it says."""
    with always_the_same(kind):
        return sound_file(kind)


def sound_file(kind):
    if kind == "card":
        answer = gate().sql("SELECT sex, COUNT(*) AS n FROM patients GROUP BY sex", epsilon=1)
        return answer.card().to_json().encode(), Card, None
    name, terms = ORDERS[kind]
    made = gate().release(name, epsilon=1, **terms)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.parquet"
        made.save(file)
        return file.read_bytes(), type(made), said(type(made).load(file))


def said(release):
    """All that a release shows."""
    shown = release.to_arrow()
    return (
        str(release),
        release.to_json(),
        shown.to_pylist(),
        str(shown.schema),
        release._repr_html_(),
        release.card().to_markdown(),
    )


def changed_record(data, kind, edits, *, resealed):
    """The file with other facts or other columns."""
    table = pq.read_table(io.BytesIO(data))
    facts = dict(table.schema.metadata)
    (key,) = [
        name
        for name in facts
        if name.startswith(b"noisegate.") and name not in (b"noisegate.card", _SEAL.encode())
    ][:1]
    for how, place, value in edits:
        if how == "column" and table.num_columns:
            table = changed_table(table, place, value)
        elif how == "fact":
            name = sorted(facts)[place % len(facts)]
            facts[name] = (
                json.dumps(VALUES[value % len(VALUES)]).encode()
                if value % 3
                else facts[name][: value * 7]
            )
        else:
            with suppress(ValueError, ArithmeticError):  # another edit left no record
                facts[key] = json.dumps(changed(json.loads(facts[key]), place, value)).encode()
    if resealed:
        facts[_SEAL.encode()] = _sealed(
            table, {name.decode(): text for name, text in facts.items()}
        ).encode()
    out = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(facts), out)
    return out.getvalue()


def changed(record, place, value):
    """JSON with one value changed, dropped or doubled."""
    record = copy.deepcopy(record)
    paths = [path for path in places_in(record) if path]
    *rest, last = paths[place % len(paths)]
    inside = at(record, rest)
    if value % 7 == 0:
        del inside[last]
    else:
        inside[last] = VALUES[value % len(VALUES)]
    return record


def changed_table(table, place, value):
    name = table.column_names[place % table.num_columns]
    spot = table.column_names.index(name)
    if value % 4 == 0:
        return table.drop_columns([name])
    if value % 4 == 1:
        return table.slice(0, value % 3)
    if value % 4 == 2:
        return table.rename_columns(
            [f"{each}x" if each == name else each for each in table.column_names]
        )
    other = pa.array(
        [None] * table.num_rows,
        [pa.string(), pa.float64(), pa.list_(pa.int8()), pa.binary()][value % 16 // 4],
    )
    return table.set_column(spot, name, other)


class Releases(Target):
    name = "releases"

    def make(self, random):
        kind = random.choice([*ORDERS, "card"])
        edits = random.choice([1, 1, 1, 2, 3])
        if kind == "card" or random.random() < 0.5:
            ways = ["flip"] * 8 + ["set", "cut", "insert", "remove", "append", "zero", "swap"]
            if kind == "card":
                ways = ["flip", "cut", "remove", *["json"] * 6]
            made = [
                [random.choice(ways), random.randrange(1 << 20), random.randrange(1 << 10)]
                for _ in range(edits)
            ]
            return json.dumps([kind, "bytes", *made])
        how = random.choice(["record", "resealed", "resealed"])
        made = [
            [
                random.choice(["record", "record", "record", "fact", "column"]),
                random.randrange(1000),
                random.randrange(1000),
            ]
            for _ in range(edits)
        ]
        return json.dumps([kind, how, *made])

    def check(self, text):
        kind, how, *edits = json.loads(text)
        data, made, sound = base(kind)
        if kind == "card":
            return self.check_card(data, edits)
        resealed = how == "resealed"
        data = (
            damaged(data, edits)
            if how == "bytes"
            else changed_record(data, kind, edits, resealed=resealed)
        )
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "x.parquet"
            file.write_bytes(data)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # without a seal it is taken for an older one
                    release = made.load(file)
            except NoisegateError as refusal:
                return refused(refusal)
            found = sound if resealed else said(release)  # a seal is no signature
        if found != sound:
            raise Finding("a changed file is read as another release", f"{found} is not {sound}")
        return Verdict(accepted=True, marks=(f"{kind} {how}",))

    def check_card(self, data, edits):
        text = data.decode()
        for way, place, value in edits:
            if way == "json":
                try:
                    text = json.dumps(changed(json.loads(text), place, value))
                except (ValueError, RecursionError):
                    break
            else:
                text = damaged(text.encode(), [(way, place, value)]).decode("utf-8", "replace")
        try:
            card = Card.from_json(text)
            card.to_markdown()
            found = verify(card, gate().ledger)
        except NoisegateError as refusal:
            return refused(refusal)
        return Verdict(accepted=not found, marks=(f"card {str(found)[:30]}",))

    def shorter(self, text):
        kind, how, *edits = json.loads(text)
        for fewer in shorter_lists(edits):
            yield json.dumps([kind, how, *fewer])


TARGET = Releases()
