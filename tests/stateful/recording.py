"""What each order asks of a ledger: its requests, one by one, with their events and charges.

    python recording.py [ORDER ...]

Runs the orders through the door, each on a ledger of its own, and prints its requests as JSON.
"""

import json
import sys

from orders import ORDERS, open_gate


def recorded(order):
    """The requests of one order, in the order of their reservations."""
    gate = open_gate(":memory:", people=order.people)
    order.ask(gate, lambda _: None, False)
    found = {}
    for entry in gate.ledger.history():
        body = entry.body
        if entry.kind == "reserve":
            charge = body["charges"][gate._curator.dataset]
            found[body["request"]] = {
                "order": order.name, "use": body["use"], "question": body["question"],
                "event": body["event"], "charge": charge,
            }  # fmt: skip
        elif entry.kind in ("settle", "close"):
            request = found[body["request"]]
            used = body.get("charges", {}).get(gate._curator.dataset, request["charge"])
            request |= {"used": body.get("used"), "used charge": used, "bytes": body["bytes"]}
    return list(found.values())


def main(*names):
    print(json.dumps([each for name in names or ORDERS for each in recorded(ORDERS[name])]))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
