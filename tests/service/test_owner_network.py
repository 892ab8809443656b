"""Owners on machines of their own: real processes over loopback, keys, drop-outs, ledgers."""

import json
import os
import re
import socket
import subprocess
import sys
from threading import Thread

import numpy as np
import pytest

from noisegate.curator.owner import Advert
from noisegate.errors import OverBudget, SpecError, Unsupported
from noisegate.federated.agreements import Pact, read_pact
from noisegate.federated.network import Identities, collect, join
from noisegate.ledger.open import open_ledger
from noisegate.ledger.signing import Signer, make_key
from noisegate.privacy.loss import ApproxDP
from refusals import about

NAMES = ("north", "south", "west")
SURE = "900"  # noise is 0, but for one draw in e^800


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    return {name: (folder / f"{name}.pem", make_key(folder / f"{name}.pem")) for name in NAMES}


def pact_of(keys, **terms):
    said = {"session": "may", "epsilon": SURE, "cells": 4, "drop_outs": 1} | terms
    return Pact(owners=tuple((name, keys[name][1]) for name in NAMES), **said)


def ledger_of(budget):
    ledger = open_ledger(":memory:")
    ledger.open_account("owner", parent=None, accountant="pure", budget=ApproxDP(budget), unit="u")
    return ledger


def session(pact, keys, parts, *, wait=10.0, budget=SURE):
    """A session of threads over loopback; what owners met on the way, by name."""
    met, ledgers = {}, {name: ledger_of(budget) for name in parts}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()

        def take_part(name, numbers):
            signer = Signer.load(keys[name][0])
            try:
                join(
                    pact, name, numbers, signer=signer, ledger=ledgers[name], account="owner",
                    address=address,
                )  # fmt: skip
            except Exception as error:  # noqa: BLE001 - looked at by the test
                met[name] = error

        threads = [Thread(target=take_part, args=each) for each in parts.items()]
        for each in threads:
            each.start()
        try:
            made = collect(pact, listener, seconds=wait, patience=10)
        finally:
            for each in threads:
                each.join(20)
    return made, met, ledgers


def test_owners_in_processes_of_their_own_add_up_and_one_may_stay_away(keys, tmp_path):
    """Each owner's ledger is a file of its own, and is charged for what it sent."""
    command = [sys.executable, "-m", "noisegate", "owner"]
    env = os.environ | {"XDG_STATE_HOME": str(tmp_path)}

    def said(*words):
        done = subprocess.run(
            [*command, *words], capture_output=True, text=True, env=env, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    agreed = str(tmp_path / "may.toml")
    pact_of(keys).write(agreed)
    assert read_pact(agreed) == pact_of(keys)
    serving = subprocess.Popen(
        [*command, "serve", agreed, "--wait", "6", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip
    address = re.search(r"on (\S+)", serving.stderr.readline())[1]
    joining = []
    for place, name in enumerate(NAMES[:2]):  # the third never comes
        (tmp_path / name).write_text("".join(f"{10 * place + cell}\n" for cell in range(4)))
        words = ["join", agreed, name, "--numbers", str(tmp_path / name), "--to", address,
                 "--key", str(keys[name][0]), "--ledger", str(tmp_path / f"{name}.ledger"),
                 "--budget", "1000", "--json"]  # fmt: skip
        joining.append(
            subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True, env=env)
        )
    paid = [json.loads(each.communicate(timeout=60)[0]) for each in joining]
    found = json.loads(serving.communicate(timeout=60)[0])
    assert found["sum"] == [10, 12, 14, 16]
    assert found["stayed"] == ["north", "south"]
    assert paid == [{"paid": 900.0, "left": 100.0}] * 2
    left = open_ledger(str(tmp_path / "north.ledger")).balance("owner").remaining
    assert left.epsilon == 100


def test_any_vector_is_added_up_also_a_gradient_of_fractions(keys):
    pact = pact_of(keys, grain="1/1000", per_unit=1, epsilon=900_000)
    parts = {name: [0.25, -1.5, 0.001 * place, 2] for place, name in enumerate(NAMES)}
    made, met, _ = session(pact, keys, parts, budget=900_000)
    assert not met
    assert made.series() == pytest.approx([0.75, -4.5, 0.003, 6])
    assert pact.agreement.per_unit == 1000 + 4 * 3  # each owner rounds each of four numbers


@pytest.mark.parametrize("grain", ["2", "1/10"])
def test_a_unit_with_rows_of_every_owner_moves_rounded_numbers_by_no_more_than_agreed(keys, grain):
    """It moves each number of each owner by a twelfth, over the edge where rounding turns."""
    pact = pact_of(keys, grain=grain)
    edge = np.full(4, float(pact.grain) / 2)
    moves = np.abs(pact.series(edge + 1 / 24) - pact.series(edge - 1 / 24)).sum() * len(NAMES)
    assert len(NAMES) * 4 <= moves <= pact.agreement.moved


@pytest.mark.parametrize("terms", [{}, {"cells": 4, "coefficients": 2}])
def test_numbers_that_are_not_whole_need_a_grain(keys, terms):
    """Else a unit that adds a quarter to each of four numbers could move them by four."""
    with pytest.raises(SpecError, check=about("whole")):
        pact_of(keys, **terms).series([0.5, 1, 1, 1])
    assert pact_of(keys, grain="1/4").series([0.5, 1, 1, 1]).tolist() == [2, 4, 4, 4]


def test_what_fourier_coefficients_leave_out_is_in_the_margin(keys):
    """The noise is nothing; the exact sum is off by what the coefficients leave out."""
    pact = pact_of(keys, cells=12, coefficients=2)
    weeks = np.arange(12)
    wave = np.rint(100 + 40 * np.cos(2 * np.pi * weeks / 12))
    parts = {name: wave + (30 if name == "west" else 0) * (weeks == 5) for name in NAMES}
    made, met, _ = session(pact, keys, parts, budget=SURE)
    assert not met
    off = np.abs(made.series() - sum(parts.values()))
    assert off.max() > 10
    assert (off <= made.margins()).all()
    assert made.left_out() >= off.max()
    assert pact.agreement.moved > pact_of(keys, cells=12, coefficients=2).agreement.block.size


@pytest.mark.parametrize("wrong", ["key", "name", "numbers", "budget", "address", "agreement"])
def test_what_is_wrong_is_refused_before_any_charge(keys, wrong):
    pact, ledger = pact_of(keys), ledger_of(1 if wrong == "budget" else SURE)
    said = {"signer": Signer.load(keys["north"][0]), "ledger": ledger, "account": "owner"}
    name, numbers, address = "north", [1, 2, 3, 4], ("127.0.0.1", 9)
    error = SpecError
    if wrong == "key":
        said["signer"] = Signer.load(keys["south"][0])
    elif wrong == "name":
        name = "east"
    elif wrong == "numbers":
        numbers = [1, 2, float("nan"), 4]
    elif wrong == "budget":
        error = OverBudget
    elif wrong == "address":
        error = Unsupported
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if wrong == "agreement":
            error, address = Unsupported, listener.getsockname()
            other = pact_of(keys, session="june")
            waiting = Thread(target=refused, args=(other, listener))
            waiting.start()
        with pytest.raises(error):
            join(pact, name, numbers, address=address, **said)
        if wrong == "agreement":
            waiting.join(10)
    assert ledger.balance("owner").spent.epsilon == 0


def refused(pact, listener):
    with pytest.raises(Unsupported, check=about("too-few")):
        collect(pact, listener, seconds=1.5)


def test_keys_that_another_owner_did_not_sign_are_refused(keys):
    pact = pact_of(keys)
    north, south = (Identities(pact, n, Signer.load(keys[NAMES[n]][0])) for n in (0, 1))
    adverts = [Advert(bytes([n]) * 32, bytes([n + 9]) * 32) for n in (0, 1)]
    roster = {0: (adverts[0], north.signed(adverts[0])), 1: (adverts[1], south.signed(adverts[1]))}
    assert north.require(roster) == dict(enumerate(adverts))
    forged = [
        roster | {1: (adverts[1], north.signed(adverts[1]))},  # signed by somebody else
        roster | {1: (adverts[0], south.signed(adverts[1]))},  # other keys
        roster | {7: roster[1]},
        roster | {1: (adverts[1], "")},
    ]
    for each in forged:
        with pytest.raises(Unsupported, check=about("signature")):
            north.require(each)
    other = Identities(pact_of(keys, session="june"), 0, Signer.load(keys["north"][0]))
    with pytest.raises(Unsupported, check=about("signature")):
        other.require(roster)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0}, {"cells": 0}, {"session": " "}, {"per_unit": -1}, {"grain": 0},
        {"coefficients": 2, "grain": "1/2"},
    ],
)  # fmt: skip
def test_an_agreement_that_cannot_be_is_refused(keys, wrong):
    with pytest.raises(SpecError):
        pact_of(keys, **wrong)
    with pytest.raises(SpecError, check=about("owners")):
        pact_of(keys).with_owner("north", keys["north"][1])
