"""Trials on made-up rows, each showing one idea at work."""

from math import ceil
from pathlib import Path
from typing import Annotated, Any

from noisegate.cli.files import require_writable, saved
from noisegate.cli.options import AtDelta, Json, argument, lab_app, option, writes
from noisegate.cli.printing import bar, print_table, say, say_json, tell
from noisegate.errors import SpecError
from noisegate.files import write, written
from noisegate.frozen import asdict


@lab_app.callback()
def lab() -> None:
    """Experiments on made-up rows."""


@lab_app.command()
def owners(
    count: Annotated[int, option("Number of owners, each with a series.", "--owners")] = 6,
    drop_outs: Annotated[int, option("Number of owners that may drop out: they will.")] = 1,
    colluding: Annotated[int, option("Number of owners that may collude.")] = 2,
    coefficients: Annotated[
        int | None, option("Coefficients: add up so many of Fourier's instead of weeks.")
    ] = None,
    epsilon: Annotated[str, option("The ε to pay: for one person.")] = "1",
    save: Annotated[list[Path] | None, writes("a plot, .png .svg .html")] = None,
    as_json: Json = False,
) -> None:
    """Add up the series of owners who trust nobody: each is a process, some drop out."""
    from noisegate.desk.display.plot import write  # noqa: PLC0415
    from noisegate.desk.release import PICTURES  # noqa: PLC0415
    from noisegate.lab.owners import run  # noqa: PLC0415 - slow to load

    require_writable(save or [], PICTURES)
    found, exact = run(
        owners=count, drop_outs=drop_outs, colluding=colluding, epsilon=epsilon,
        coefficients=coefficients,
    )  # fmt: skip
    with saved(save, lambda path: write(found.plot(), path)):
        _show(found, exact, coefficients, as_json=as_json)


def _show(
    found: Any,  # noqa: ANN401 - what owners made together
    exact: Any,  # noqa: ANN401
    coefficients: int | None,
    *,
    as_json: bool,
) -> None:
    shown, margins = found.series(), found.margins()
    if as_json:
        facts = {
            "stayed": list(found.stayed), "sum": shown.tolist(), "margins": margins.tolist(),
            "exact": exact.tolist(), "promise": found.words,
        }  # fmt: skip
        say_json(facts)
        return
    rows = [
        (str(week + 1), f"{shown[week]:.0f} ± {ceil(margins[week])}", str(exact[week]))
        for week in range(0, exact.size, 4)
    ]
    print_table(
        f"Weekly admissions of {len(found.stayed)} hospitals", ("week", "sum", "exact"), rows
    )
    if coefficients is not None:
        say("Not in the ±: the error of leaving out the other coefficients.")
    say(str(found))


@lab_app.command()
def crowd(
    probability: Annotated[str, option("Probability of each person to be in the sample.")] = "1/10",
    least: Annotated[int, option("Counts below this are hidden.", "--crowd")] = 36,
    delta: AtDelta = "1e-6",
    people: Annotated[int, option("Number of people.")] = 100_000,
    cells: Annotated[int, option("How many numbers: groups of people.")] = 100,
    trials: Annotated[int, option("Number of trials.")] = 100,
    *,
    as_json: Json = False,
) -> None:
    """Compare k-anonymity, crowds and noise on one made-up table of counts."""
    from noisegate.lab.crowds import compare, made_up  # noqa: PLC0415

    counts = made_up(people, cells)
    found = compare(counts, probability=probability, crowd=least, delta=delta, trials=trials)
    if as_json:
        say_json({"ways": [asdict(each) for each in found]})
        return
    rows = [
        (
            each.name,
            each.promise,
            f"{each.of_sample:,.1f}",
            f"{each.of_people:,.1f}",
            f"{each.small:,.1f}",
            f"{each.hidden:.1f}",
        )
        for each in found
    ]
    head = ("", "promise", "large counts: of the sample", "of all", "small counts", "hidden")
    print_table(f"{people:,} people in {cells} groups", head, rows)
    say(
        "Root mean square errors, scaled up to all people. On a sample, a crowd shows its large "
        "counts as counted; where all rows may be used, noise on them has the smallest error."
    )


@lab_app.command()
def linkage(
    people: Annotated[int, option("Number of people.")] = 1000,
    k: Annotated[int, option("Of k-anonymity.")] = 5,
    *,
    as_json: Json = False,
) -> None:
    """Attack tables without names, and k-anonymous ones, of made-up people."""
    from noisegate.lab.attacks.linkage import steps_of  # noqa: PLC0415 - slow to load

    found = steps_of(people, k)
    if as_json:
        say_json({"learnt": [{"from": seen, "is_learnt": words} for seen, words in found]})
        return
    print_table("What others learn", ("from", "is learnt"), found)
    say("A property of a table does not protect a person: see docs/crowd.md.")


@lab_app.command()
def attacks(
    names: Annotated[
        list[str] | None, argument("Which; by default all.", metavar="[ATTACK]...")
    ] = None,
    epsilon: Annotated[str, option("The ε to pay: by the gate in each trial.")] = "1",
    times: Annotated[int, option("Number of trials of each attack.")] = 100,
    save: Annotated[list[Path] | None, writes("a report, .html, or one picture, .svg")] = None,
    *,
    as_json: Json = False,
) -> None:
    """Try the classic attacks on raw answers, on a classic defence and on a gate."""
    from noisegate.lab.attacks.run import NAMES, tried  # noqa: PLC0415 - slow to load

    require_writable(save or [], (".html", ".svg"))
    with bar() as progress:
        found = tried(names or NAMES, epsilon=epsilon, times=times, progress=progress)
    with saved(save, lambda path: _write_attacks(path, found, epsilon)):
        if as_json:
            say_json({"attacks": [each.to_record() for each in found]})
            return
        _print_attacks(found, times)


def _print_attacks(found: Any, times: int) -> None:  # noqa: ANN401 - outcomes
    head: tuple[str, ...] = ("attack", "", "raw", "classic", "gate", "chance", "at most")
    rows: list[tuple[str, ...]] = [
        (each.name, each.title, *(f"{share:.0%}" for share in each.shares)) for each in found
    ]
    if len(found) == 1:
        (one,) = found
        say(f"{one.title}: {one.measure}. {one.story}")
        rows = [(trial.against, f"{trial.success:.0%}") for trial in one.trials.values()]
        rows += [("chance", f"{one.chance:.0%}"), ("at most, by ε", f"{one.bound:.0%}")]
        head = ("against", "right")
    print_table(f"How often the attacker is right, in {times} trials", head, rows)
    say(
        "classic: a defence as it is often built. gate: a real gate. at most: what the gate's ε "
        f"allows any attacker. {times} trials err by about ± {times**-0.5:.0%}."
    )


def _write_attacks(path: Path, found: Any, epsilon: str) -> None:  # noqa: ANN401 - outcomes
    from noisegate.lab.attacks.outcome import picture  # noqa: PLC0415
    from noisegate.lab.report import page  # noqa: PLC0415
    from noisegate.lab.unpromised import run  # noqa: PLC0415

    if path.suffix == ".html":
        write(path, page(found, run(epsilon)))
        return
    if len(found) != 1:
        raise SpecError("A picture shows one attack.", fix="Name one, or save a report (.html).")
    write(path, picture(found[0]))


@lab_app.command()
def ratio(
    mechanism: Annotated[
        str, option("A mechanism: geometric, gaussian, exponential, raw, …")
    ] = "geometric",
    epsilon: Annotated[str, option("The ε to pay: its ratio is drawn.")] = "1",
    draws: Annotated[int, option("Draws of the real mechanism.")] = 20_000,
    save: Annotated[list[Path] | None, writes("a plot, .svg .png")] = None,
    *,
    as_json: Json = False,
) -> None:
    """Draw the laws of a count with and without my row, and the ratios that ε forbids."""
    from noisegate.lab.ratios import COUNT, laws, picture  # noqa: PLC0415 - slow to load

    require_writable(save or [], (".svg", ".png"))
    found = laws(mechanism, epsilon=epsilon, draws=draws)
    with saved(save, lambda path: _write_svg(path, picture(found))):
        if as_json:
            say_json(found.to_dict())
            return
        near = [
            (str(at), f"{p:.4g}", f"{q:.4g}", f"{q / p:.4g}" if p else "–")
            for at, p, q in zip(found.outputs, found.without, found.with_me, strict=True)
            if abs(int(at) - COUNT) <= 6 or found.outputs.size < 9
        ]
        print_table(None, ("output", "K(DB - me)", "K(DB + me)", "ratio"), near)
        say(found.words)


@lab_app.command("bounds")
def lower_bounds(
    epsilon: Annotated[str, option("The ε to pay.")] = "1", *, as_json: Json = False
) -> None:
    """Print lower bounds for any private mechanism beside what is reached here."""
    from noisegate.lab.bounds import bounds  # noqa: PLC0415

    rows = bounds(epsilon=epsilon)
    if as_json:
        say_json({"bounds": [asdict(row) for row in rows]})
        return
    shown = [(r.task, r.error, f"{r.least:.3g}", f"{r.reached:.3g}", r.why) for r in rows]
    print_table(None, ("task", "error", "no one below", "here", "why"), shown)


@lab_app.command("report")
def lab_report(
    save: Annotated[Path, writes("the page, .html")],
    epsilon: Annotated[str, option("The ε to pay: of the laws and of each trial.")] = "1",
    times: Annotated[int, option("Number of trials of each attack.")] = 100,
    attack: Annotated[
        list[str] | None, option("Only these attacks; repeat it for several.")
    ] = None,
    *,
    as_json: Json = False,
) -> None:
    """Write all that the lab shows to one page that needs no network."""
    from noisegate.lab.attacks.run import NAMES  # noqa: PLC0415 - slow to load
    from noisegate.lab.report import report  # noqa: PLC0415

    require_writable([save], (".html",))
    with bar() as progress:
        text = report(epsilon=epsilon, times=times, names=tuple(attack or NAMES), progress=progress)
    write(save, text)
    tell({"wrote": save.name}, f"wrote {save.name}", as_json=as_json)


def _write_svg(path: Path, text: str) -> None:
    from noisegate.extras import extra  # noqa: PLC0415

    if path.suffix.lower() == ".svg":
        write(path, text)
        return
    drawn = extra("vl_convert", "Pictures in files", "plot").svg_to_png(text, scale=2)
    with written(path) as made:
        made.write_bytes(drawn)


@lab_app.command("map")
def crossings(
    epsilon: Annotated[
        list[str] | None, option("The ε to pay: repeatable. [1, 0.1, 0.01, 0.001]")
    ] = None,
    save: Annotated[list[Path] | None, writes("a plot, .png .svg .html")] = None,
    *,
    as_json: Json = False,
) -> None:
    """Count street crossings in 65,025 cells of a made-up map at several prices."""
    from noisegate.desk.display.plot import write  # noqa: PLC0415
    from noisegate.desk.release import PICTURES  # noqa: PLC0415
    from noisegate.lab.intersections import PRICES, picture, run  # noqa: PLC0415 - slow to load

    require_writable(save or [], PICTURES)
    exact, drawn = run(epsilon or PRICES)
    rows = [
        {
            "epsilon": float(each.epsilon),
            "mean error": round(each.mean_error, 2),
            "by the law of the noise": round(each.expected_mean, 2),
            "largest error": each.max_error,
            "expected largest": round(each.expected_max),
            "mean error of release map": round(each.auto_mean, 2),
        }
        for each in drawn
    ]
    with saved(save, lambda path: write(picture(exact, drawn), path)):
        if as_json:
            say_json({"prices": rows})
            return
        shown = [[f"{value:g}" for value in row.values()] for row in rows]
        print_table(f"{exact.size:,} counts, {exact.sum():,} crossings", tuple(rows[0]), shown)
        say(
            "The error of a count is that of its noise, whatever is on the map and however many "
            "cells it has: 1 / ε. A release of the map is sharper, since most cells are empty."
        )
