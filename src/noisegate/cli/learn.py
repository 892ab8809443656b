"""The command that learns a model from private rows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisegate.cli.app import Confidence, Epsilon, Fresh, Json, Planned, PrintOrder, app
from noisegate.cli.opening import Opening, opens
from noisegate.cli.printing import bar, print_plan, print_table, saved, say, say_json
from noisegate.cli.releases import options_of, require_writable
from noisegate.files import write as write_file
from noisegate.files import written
from noisegate.inert import json_text

if TYPE_CHECKING:
    from noisegate.gate import Gate

_SHOWN = 64  # numbers of a fitted array that are printed


@app.command()
@opens
def learn(
    opening: Opening,
    model: Annotated[str, typer.Argument(help="For example KMeans, LogisticRegression, PCA.")],
    columns: Annotated[
        str | None, typer.Option(help="For example age,bmi; by default all declared columns.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The target column.")] = None,
    table: Annotated[str | None, typer.Option(help="The table, if there are several.")] = None,
    where: Annotated[str | None, typer.Option(help="Which rows.")] = None,
    epsilon: Epsilon = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", help="Parameters of the model: n_clusters=3. Repeatable."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(help="A .joblib file for scikit-learn, a .json of numbers; .png .svg .html."),
    ] = None,
    plan: Planned = False,
    confidence: Confidence = "0.95",
    fresh: Fresh = False,
    print_order: PrintOrder = False,
    as_json: Json = False,
) -> None:
    """Learn a model from private rows, for a price."""
    from noisegate.orders import FitOrder  # noqa: PLC0415 - quick help

    order = FitOrder.make(
        model=model, options=options_of("--set", options, such_as="n_clusters=3"), table=table,
        columns=columns.split(",") if columns else None, target=target, where=where,
        rows_per_unit=opening.caps.get("rows_per_unit"), epsilon=epsilon,
    )  # fmt: skip
    if print_order:
        say_json(order.to_dict())
        return
    if plan:
        print_plan(opening.gate(to_plan=True).plan(order, fresh=fresh), confidence, as_json=as_json)
        return
    if save is not None:
        from noisegate.shell import PICTURES  # noqa: PLC0415 - quick help

        drawn = PICTURES if hasattr(order.learner(), "plot") else ()
        require_writable([save], (".joblib", ".json", *drawn))
    gate = opening.gate(writes=None if save is None else [save])
    with bar() as progress:
        learner = gate.run(order, progress=progress, fresh=fresh)
    with saved([] if save is None else [save], lambda path: _save(path, learner)):
        print_model(model, learner, gate, as_json=as_json)


def print_model(model: str, learner: Any, gate: "Gate", *, as_json: bool) -> None:  # noqa: ANN401 - an estimator
    """What was fitted, with the price and the promise."""
    from noisegate.orders.results import balance, fitted  # noqa: PLC0415 - quick help

    if as_json:
        paid = balance(learner.cost_, gate.remaining)
        promise = {"guarantee": str(learner.guarantee_)}
        say_json({"model": model, "fitted": fitted(learner), **promise, **paid})
        return
    facts = fitted(learner)
    print_table(None, (model, ""), [(name, _shown(value)) for name, value in facts.items()])
    say(f"paid {learner.cost_}, left {gate.remaining:left}")
    say(str(learner.guarantee_))


def _shown(value: Any) -> str:  # noqa: ANN401 - JSON
    def short(each: Any) -> str:  # noqa: ANN401
        if isinstance(each, list):
            return f"[{', '.join(map(short, each))}]"
        return f"{each:.4g}" if isinstance(each, float) else str(each)

    if isinstance(value, dict):
        return "\n".join(f"{name}: {_shown(each)}" for name, each in value.items())
    if isinstance(value, list) and value and isinstance(value[0], list):
        size = sum(len(row) if isinstance(row, list) else 1 for row in value)
        return "\n".join(map(short, value)) if size <= _SHOWN else f"{len(value)} rows"
    if isinstance(value, list) and len(value) > _SHOWN:
        return f"{len(value)} numbers"
    return short(value)


def _save(path: Path, learner: Any) -> None:  # noqa: ANN401 - an estimator
    from noisegate.orders.results import fitted  # noqa: PLC0415 - quick help

    ending = path.suffix.lower()
    if ending == ".json":
        write_file(path, json_text(fitted(learner), indent=1) + "\n")
    elif ending != ".joblib":
        from noisegate.desk.plot import write  # noqa: PLC0415 - only when asked for

        write(learner.plot(), path)
    else:
        import joblib  # noqa: PLC0415 - comes with scikit-learn

        with written(path):
            joblib.dump(learner, path)
