"""The command that learns a model from private rows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from noisegate.cli.analysts.choose import listed, print_choice
from noisegate.cli.analysts.releases import options_of
from noisegate.cli.files import require_writable, saved
from noisegate.cli.opening import Asking, Opening, opens
from noisegate.cli.options import RowsWhere, Table, app, argument, option, writes
from noisegate.cli.printing import print_table, say, say_json
from noisegate.errors import SpecError
from noisegate.files import write as write_file
from noisegate.files import written
from noisegate.inert import json_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from noisegate.learners.items.likelihood import LikelihoodFit

_SHOWN = 64  # numbers of a fitted array that are printed
_DEPTH = 5  # and levels of a tree


@app.command()
@opens
def learn(
    *,
    opening: Opening,
    model: Annotated[str, argument("For example KMeans, LogisticRegression, PCA.")],
    columns: Annotated[
        str | None, option("Columns: age,bmi; by default all that are declared.")
    ] = None,
    target: Annotated[str | None, option("The target column.")] = None,
    table: Table = None,
    where: RowsWhere = None,
    asking: Asking,
    options: Annotated[
        list[str] | None, option("Parameters of the model: n_clusters=3. Repeatable.", "--set")
    ] = None,
    rows: Annotated[
        int | None, option("A public number of rows: with --plan, for the score to expect.")
    ] = None,
    save: Annotated[
        list[Path] | None,
        writes(".joblib for scikit-learn, .json, .png .svg .html; its card: .md .card.json"),
    ] = None,
) -> None:
    """Learn a model from private rows, for a price."""
    from noisegate.orders import FitOrder  # noqa: PLC0415 - quick help

    order = FitOrder.make(
        model=model, options=options_of("--set", options, such_as="n_clusters=3"), table=table,
        columns=columns.split(",") if columns else None, target=target, where=where,
        rows_per_unit=opening.caps.get("rows_per_unit"), epsilon=asking.epsilon, rows=rows,
    )  # fmt: skip
    if save:
        from noisegate.shell import PICTURES  # noqa: PLC0415 - quick help

        drawn = PICTURES if hasattr(order.learner(), "plot") else ()
        require_writable(save, (".joblib", ".json", ".md", *drawn))
    learner = asking.ordered(opening, order, writes=save)
    if learner is not None:
        with saved(save, lambda path: _save(path, learner, asking.confidence)):
            print_model(model, learner, as_json=asking.as_json)


@app.command()
@opens
def statistic(
    opening: Opening,
    expressions: Annotated[list[str], argument("Bounded expressions: 'age >= 65' 'cost / 800'.")],
    asking: Asking,
    table: Table = None,
    where: RowsWhere = None,
    tolerance: Annotated[
        str | None, option("How far all may be off: instead of --epsilon.")
    ] = None,
    rows: Annotated[int | None, option("A public number of rows: with --tolerance.")] = None,
    family: Annotated[
        str | None, option("Solve for a family of your own: program.py:log_partition.")
    ] = None,
    start: Annotated[str | None, option("With --family: parameters, 1,-1.")] = None,
    save: Annotated[
        list[Path] | None,
        writes("its card, .md .card.json; with --family also .parquet .csv .json"),
    ] = None,
) -> None:
    """Release the means of bounded expressions: statistical queries, for one price."""
    from noisegate.desk.release import ENDINGS  # noqa: PLC0415 - quick help
    from noisegate.orders import StatisticOrder  # noqa: PLC0415
    from noisegate.orders.results import record_of  # noqa: PLC0415

    order = StatisticOrder.make(
        expressions=expressions, table=table, where=where, tolerance=tolerance, rows=rows,
        epsilon=asking.epsilon, rows_per_unit=opening.caps.get("rows_per_unit"),
    )  # fmt: skip
    if family is None and not all(map(_is_card, save or [])):
        raise SpecError(
            "Of means, only the card is saved.", fix="Use .md, .card.json, or --json.", about="save"
        )
    require_writable(save or [], ENDINGS)
    solve = None if family is None else _solver(family, start, len(expressions))
    means = asking.ordered(opening, order, writes=save)
    if means is None:
        return
    record = record_of(order, means, means.remaining, asking.confidence)
    if solve is not None:
        fit = solve(tuple(expressions), means)
        record |= fit.to_dict(asking.confidence)
        for path in save or []:
            fit.save(path, asking.confidence)
    else:
        for path in save or []:
            write_card(path, means, asking.confidence)
    if asking.as_json:
        say_json(record)
        return
    pairs = zip(record["names"], record["values"], means.within(asking.confidence), strict=True)
    print_table(None, ("", "mean", "±"), [(n, f"{v:.6g}", f"{w:.3g}") for n, v, w in pairs])
    if solve is not None:
        found = zip(record["parameters"], record["margins"], strict=True)
        lines = [(f"θ{place + 1}", f"{v:.6g}", f"{w:.3g}") for place, (v, w) in enumerate(found)]
        print_table(None, ("", "parameter", "±"), lines)
    say(f"rows {means.rows:,.0f} · paid {means.cost}, left {means.remaining:left}")
    for words in (*means.caveats, means.guarantee):
        say(str(words))


def _solver(program: str, start: str | None, count: int) -> "Callable[..., LikelihoodFit]":
    """What makes parameters of means: a program of one's own, which sees released numbers alone."""
    from runpy import run_path  # noqa: PLC0415 - quick help

    import numpy as np  # noqa: PLC0415

    from noisegate.learners.items.likelihood import begun, solved  # noqa: PLC0415

    path, _, name = program.rpartition(":")
    try:
        found = run_path(path).get(name)
    except OSError:
        found = None
    if not callable(found):
        raise SpecError(
            f"There is no function {program}.",
            fix="For example: --family program.py:log_partition.",
            about="family",
        )
    told = None if start is None else [float(each) for each in start.split(",")]
    begin = begun(found, told, count)
    return lambda names, means: solved(names, means, found, np.asarray(begin))


@app.command()
@opens
def hypothesis(
    opening: Opening,
    conditions: Annotated[list[str], argument("One with parameters, 'age >= t', or several.")],
    label: Annotated[str, option("A label: what they are to say, \"sick = 'yes'\".")],
    asking: Asking,
    candidates: Annotated[
        str | None, option("A public list: of parameters, t=20,40,60, or a .csv file.")
    ] = None,
    table: Table = None,
    where: RowsWhere = None,
    save: Annotated[list[Path] | None, writes("its card, .md .card.json")] = None,
) -> None:
    """Learn a finite class: the hypothesis with nearly the fewest errors (KLNRS)."""
    from noisegate.learners.classes import class_order, learnt_of, table_of  # noqa: PLC0415

    said = conditions[0] if len(conditions) == 1 else conditions
    held = table_of(opening.gate(to_plan=True), table)
    order = class_order(
        said, label, table=held, candidates=listed(candidates), where=where,
        epsilon=asking.epsilon, rows_per_unit=opening.caps.get("rows_per_unit"),
    )  # fmt: skip
    require_writable(save or [], (".md", ".json"))
    choice = asking.ordered(opening, order, writes=save)
    if choice is None:
        return
    for path in save or []:
        write_card(path, choice, asking.confidence)
    found = learnt_of(said, order.candidates, choice)
    if asking.as_json:
        excess = {"hypothesis": found.hypothesis, "excess": found.excess(asking.confidence)}
        say_json(choice.to_dict(asking.confidence) | excess)
        return
    say(found.hypothesis)
    print_choice(choice, asking.confidence, as_json=False)


def print_model(model: str, learner: Any, *, as_json: bool) -> None:  # noqa: ANN401 - an estimator
    """What was fitted, with the price and the promise."""
    from noisegate.orders.results import balance, fitted  # noqa: PLC0415 - quick help

    if as_json:
        paid = balance(learner.cost_, learner.remaining_)
        promise = {"guarantee": str(learner.guarantee_)}
        say_json({"model": model, "fitted": fitted(learner), **promise, **paid})
        return
    if hasattr(learner, "export_text"):
        say(learner.export_text(max_depth=_DEPTH))
    elif hasattr(learner, "rules_"):
        for rule in learner.rules_ or ["no rule is confident enough"]:
            say(str(rule))
    elif hasattr(learner, "itemsets_"):
        off = f"{learner.within():.3g}"
        found = [(", ".join(e.items), f"{e.count:,.0f} ± {off}", f"{e.support:.3f}")
                 for e in learner.itemsets_]  # fmt: skip
        print_table(None, ("items", "count", "share"), found)
    else:
        facts = fitted(learner)
        print_table(None, (model, ""), [(name, _shown(value)) for name, value in facts.items()])
    say(f"paid {learner.cost_}, left {learner.remaining_:left}")
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


def _is_card(path: Path) -> bool:
    return path.name.lower().endswith((".md", ".card.json"))


def write_card(path: Path, made: Any, confidence: str) -> None:  # noqa: ANN401 - anything with a card
    """A card as a page, or as JSON that can be checked."""
    card = made.card(confidence)
    write_file(path, card.to_markdown() if path.suffix.lower() == ".md" else card.to_json())


def _save(path: Path, learner: Any, confidence: str) -> None:  # noqa: ANN401 - an estimator
    from noisegate.orders.results import fitted  # noqa: PLC0415 - quick help

    ending = path.suffix.lower()
    if _is_card(path):
        write_card(path, learner, confidence)
    elif ending == ".json":
        write_file(path, json_text(fitted(learner), indent=1) + "\n")
    elif ending != ".joblib":
        from noisegate.desk.display.plot import write  # noqa: PLC0415 - only when asked for

        write(learner.plot(), path)
    else:
        import joblib  # noqa: PLC0415 - comes with scikit-learn

        with written(path):
            joblib.dump(learner, path)
