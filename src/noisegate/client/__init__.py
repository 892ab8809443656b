"""A gate over the network: the methods of a gate, each an order that is sent to a service.

Read `gate.py` first. `calls.py` speaks HTTP, `results.py` makes of what comes back what a gate in
this process would have given. Nothing here sees a row: a service sends what was released.
"""

from noisegate.client.gate import RemoteGate, connect

__all__ = ["RemoteGate", "connect"]
