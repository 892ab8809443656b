"""Two replicas on one Postgres ledger; one is killed under load. Each key is paid for once."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from fractions import Fraction
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from noisegate.ledger.open import open_ledger
from noisegate.server.access import AuditLog, line
from noisegate.server.people import People
from noisegate.server.store import Store

EPSILON, ANALYSTS, ORDERS = Fraction(1, 100), 3, 8
SQL = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"


@pytest.fixture
def replicas(clinic, server):
    """Two processes with one ledger and one store, and a token for each analyst."""
    address, store = server.fresh(), server.fresh()
    text = clinic.read_text().replace("[budget]", f'ledger = "{address}"\n\n[budget]', 1)
    clinic.write_text(text)
    command = [Path(sys.executable).parent / "noisegate", "serve", clinic, "--port", "0"]
    command += ["--state", store, "--quantum", "0"]
    made = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        urls = [re.search(r"http://[\w.:]+", each.stdout.readline())[0] for each in made]
        kept = Store(store)
        people = People(kept)
        people.add("ana", "analyst")
        token = people.new_token("ana")
        kept.close()
        yield made, urls, token, address
    finally:
        for each in made:
            each.kill()
            each.wait()
            each.stdout.close()


def post(url, token, key):
    """The answer's rows, from a replica that lives."""
    order = {"kind": "sql", "sql": SQL, "epsilon": str(EPSILON), "fresh": True}
    headers = {
        "Authorization": f"Bearer {token}", "Content-Type": "application/json",
        "Idempotency-Key": key, "Prefer": "wait=20",
    }  # fmt: skip
    body = json.dumps(order).encode()
    request = Request(f"{url}/datasets/clinic/orders", data=body, headers=headers)
    with urlopen(request, timeout=30) as reply:
        return json.loads(reply.read())["rows"]


@pytest.mark.long
def test_a_replica_that_is_killed_loses_nothing_and_nobody_pays_twice(replicas):
    processes, urls, token, ledger = replicas
    answers, killed = {}, threading.Event()

    def analyst(name):
        for number in range(ORDERS):
            key = f"{name}-{number}"
            if number == ORDERS // 2 and not killed.is_set():
                killed.set()
                processes[0].send_signal(signal.SIGKILL)
            for url in (*urls, urls[1]):  # the first may be gone, or go while it works
                try:
                    answers[key] = post(url, token, key)
                    break
                except (URLError, HTTPException, OSError):
                    continue

    threads = [threading.Thread(target=analyst, args=(name,)) for name in range(ANALYSTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == ANALYSTS * ORDERS
    assert {key: post(urls[1], token, key) for key in answers} == answers  # each key, one answer
    with open_ledger(ledger) as book:
        assert book.balance("clinic").spent.epsilon == len(answers) * EPSILON
        assert book.verify().ok


def test_replicas_that_write_at_the_same_time_do_not_wait_for_each_other_for_ever(server):
    """One writes a line of the log, then a run; the other a run, then a line."""
    address = server.fresh()
    stores, failed = [Store(address) for _ in range(2)], []

    def steps(store, *, run_first):
        def work(do):
            for step in (run_first, not run_first):
                if step:
                    do("UPDATE runs SET state = 'done'", ())
                    do("LOCK TABLE runs IN EXCLUSIVE MODE", ())
                else:
                    AuditLog(store).write(do, line("ana", "ask", face="http"))
                    do("LOCK TABLE access IN EXCLUSIVE MODE", ())
                time.sleep(0.3)

        try:
            store.do(work)
        except Exception as error:  # noqa: BLE001 - counted
            failed.append(error)

    threads = [
        threading.Thread(target=steps, args=(store,), kwargs={"run_first": first})
        for store, first in zip(stores, (True, False), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert AuditLog(stores[0]).broken() is None
    for store in stores:
        store.close()
