"""The command that plans or runs an order from a file of JSON."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from noisegate.cli import printing
from noisegate.cli.analysts.choose import print_choice
from noisegate.cli.analysts.learn import print_model
from noisegate.cli.analysts.many import print_session
from noisegate.cli.analysts.questions import print_caps
from noisegate.cli.files import read_text
from noisegate.cli.opening import Opening, opens
from noisegate.cli.options import Confidence, Fresh, Json, Planned, app, argument
from noisegate.errors import SpecError

if TYPE_CHECKING:
    from noisegate.desk.order import Order
    from noisegate.desk.plan import Expected


@app.command()
@opens
def order(
    opening: Opening,
    order_file: Annotated[
        Path, argument("A file of JSON, as --print-order writes it.", metavar="ORDER")
    ],
    confidence: Confidence = "0.95",
    fresh: Fresh = False,
    plan: Planned = False,
    as_json: Json = False,
) -> None:
    """Run an order that was made elsewhere. What was released before is free."""
    from noisegate.orders import ManyOrder, order_from  # noqa: PLC0415 - quick help
    from noisegate.orders.results import record_of  # noqa: PLC0415

    try:
        record = json.loads(read_text(order_file))
    except (ValueError, RecursionError):
        raise SpecError(f"{order_file.name!r} is not JSON.", fix="See docs/reference.md.") from None
    ordered = order_from(record)
    gate = opening.gate(to_plan=plan)
    if plan:
        printing.print_plan(gate.plan(ordered, fresh=fresh), confidence, as_json=as_json)
    elif isinstance(ordered, ManyOrder):
        print_session(gate, ordered, as_json=as_json)
    else:
        with printing.bar() as progress:
            made = gate.run(ordered, fresh=fresh, progress=progress)
        if as_json:
            printing.say_json(record_of(ordered, made, gate.remaining, confidence))
        else:
            _show(ordered, made, confidence)


def _show(order: "Order[Any, Expected]", made: Any, confidence: str) -> None:  # noqa: ANN401 - what an order makes
    match order.kind:
        case "choose" | "auction" | "score":
            print_choice(made, confidence, as_json=False)
        case "fit":
            print_model(type(made).__name__, made, as_json=False)
        case "caps":
            print_caps(made)
        case "bounds":
            printing.say(f"between = [{float(made[0]):g}, {float(made[1]):g}]")
        case "statistic":
            widths = made.within(confidence)
            rows = zip(made.names, made.values, widths, strict=True)
            printing.print_table(
                None, ("mean of", "", ""), [(n, f"{v:.6g}", f"± {w:.3g}") for n, v, w in rows]
            )
            printing.say(f"paid {made.cost}, left {made.remaining:left}")
            printing.say(str(made.guarantee))
        case _:
            printing.show(made, confidence)
