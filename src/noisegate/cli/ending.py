"""How a command ends, whatever happens: one line, an exit code, and what was charged by then.

The words of an unexpected error may quote a row (a cast that fails names the value), so they are
shown to nobody but a steward who asks for them.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from io import StringIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from noisegate.cli.printing import say, say_json
from noisegate.errors import Bug, NoisegateError, OperatorError
from noisegate.inert import lines

if TYPE_CHECKING:
    from noisegate.gate import Gate
    from noisegate.privacy.loss import ApproxDP

DEBUG = "NOISEGATE_DEBUG"
_INTERRUPTED = 130
_opened: list[tuple["Gate", "ApproxDP"]] = []


def opened(gate: "Gate") -> "Gate":
    """Note a gate, so that whatever ends the command can say what was charged."""
    _opened.append((gate, gate.spent))
    return gate


def ended(command: Callable[..., Any]) -> int:
    """Run a command to its end; gives its exit code."""
    _opened.clear()
    _prepare()
    try:
        code = command(standalone_mode=False)
        sys.stdout.flush()
    except BaseException as wrong:  # noqa: BLE001 - whatever it is, it ends here
        return _end(wrong)
    if code == _INTERRUPTED:  # typer makes a number of Ctrl-C
        return _interrupted()
    return code if isinstance(code, int) else 0


def _prepare() -> None:
    """Outputs that take any letter, and are there: the shell may have closed them."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="noisegate")


def _end(wrong: BaseException) -> int:
    match wrong:
        case SystemExit():
            return wrong.code if isinstance(wrong.code, int) else 1
        case KeyboardInterrupt() | typer.Abort():
            return _interrupted()
        case BrokenPipeError():
            return _unheard()
        case NoisegateError():
            return _refused(wrong)
    return _stumbled(wrong)


def _refused(refusal: NoisegateError) -> int:
    if "--json" in sys.argv:
        error = {"code": refusal.code, "message": refusal.problem, "fix": refusal.fix}
        say_json({"error": error})
    say(f"{refusal.code}: {refusal.problem}\n  {refusal.fix}", err=True)
    return refusal.exit_code


def _interrupted() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would cut off these words
    say(f"\ninterrupted: {_charged()}", err=True)
    return _INTERRUPTED


def _unheard() -> int:
    """Nobody reads any more, as after `| head`; the interpreter must not try again at its end."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _stumbled(wrong: BaseException) -> int:
    if hasattr(wrong, "show") and hasattr(wrong, "exit_code"):  # how typer says what was mistyped
        return _mistyped(wrong)
    if os.environ.get(DEBUG):
        say("".join(traceback.format_exception(wrong)), err=True)
    if isinstance(wrong, OSError) and wrong.strerror:
        named = f" ({Path(os.fsdecode(wrong.filename)).name})" if _has_name(wrong) else ""
        return _refused(OperatorError(f"The system says: {wrong.strerror}{named}.", fix=_charged()))
    name = type(wrong).__name__
    return _refused(
        Bug(
            f"noisegate stumbled: {name} in {_place(wrong)}. {_charged()}",
            fix=f"Please report this line to the maintainers. With {DEBUG}=1 the same command "
            "shows more, which may quote rows: for the steward alone.",
        )
    )


def _mistyped(wrong: Any) -> int:  # noqa: ANN401 - an exception of typer's
    text = StringIO()
    wrong.show(file=text)
    say(lines(text.getvalue().rstrip("\n")), err=True)
    return int(wrong.exit_code)


def _has_name(wrong: OSError) -> bool:
    return isinstance(wrong.filename, str | bytes | os.PathLike)


def _place(wrong: BaseException) -> str:
    """Where in noisegate it happened."""
    frames = traceback.extract_tb(wrong.__traceback__)
    own = [each for each in frames if f"{os.sep}noisegate{os.sep}" in each.filename] or frames
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "an unknown place"


def _charged() -> str:
    """What the account had spent when it was opened, and what it has now."""
    found = []
    for gate, before in _opened:
        with suppress(NoisegateError):
            now = gate.spent
            found.append(
                "Nothing was charged."
                if now == before
                else f"Charged: the account has spent {now}, and {before} before; the same "
                "question goes on under this charge."
            )
    return " ".join(dict.fromkeys(found)) or "Nothing was charged."
