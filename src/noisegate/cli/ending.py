"""How a command ends, whatever happens: one line, an exit code, and what was charged by then.

The words of an unexpected error may quote a row (a cast that fails names the value), so they are
shown to nobody but a steward who asks for them.
"""

import atexit
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from io import StringIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from noisegate.cli.printing import as_options, say, say_json
from noisegate.errors import DEBUG, NoisegateError, UserError, stumbled
from noisegate.inert import line, lines

if TYPE_CHECKING:
    from noisegate.gate import Gate
    from noisegate.privacy.loss import ApproxDP

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


def leave(code: int) -> None:
    """End the process at once: ledgers are closed and exit handlers run, but nothing else is freed.

    To take every object apart takes a fifth of a first answer. Ledgers that no gate holds close
    themselves when they are freed, and threads may have to end first: then this does nothing.
    """
    for gate, _ in _opened:
        with suppress(Exception):  # the answer is out, and the ledger has it
            gate.close()
    others = [each for each in threading.enumerate() if not each.daemon]
    if len(others) > 1 or ("noisegate.ledger.ledger" in sys.modules and not _opened):
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - what the interpreter calls at its end
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


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
    problem, fix = refusal.problem, refusal.fix
    if isinstance(refusal, UserError):  # others speak of files, which have their own words
        problem, fix = as_options(problem), as_options(fix)
    _say_error(refusal.code, problem, fix)
    say(f"{type(refusal).code}: {problem}\n  {fix}", err=True)
    return refusal.exit_code


def _say_error(code: str, message: str, fix: str) -> None:
    """The same as JSON, where that was asked for: whoever reads along always gets one object."""
    if "--json" not in sys.argv:
        return
    try:
        say_json({"error": {"code": code, "message": line(message), "fix": line(fix)}})
    except BrokenPipeError:
        _unheard()


def _interrupted() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would cut off these words
    charged = _charged()
    _say_error("interrupted", "The command was interrupted.", charged)
    say(f"\ninterrupted: {charged}", err=True)
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
    code = _refused(stumbled(wrong))
    say(f"  {_charged()}", err=True)
    return code


def _mistyped(wrong: Any) -> int:  # noqa: ANN401 - an exception of typer's
    text = StringIO()
    wrong.show(file=text)
    asked = getattr(getattr(wrong, "ctx", None), "command_path", "noisegate")
    _say_error("usage", wrong.format_message(), f"See {asked} -h.")
    say(lines(text.getvalue().rstrip("\n")), err=True)
    return int(wrong.exit_code)


def _charged() -> str:
    """What the account had spent when it was opened, and what it has now."""
    from noisegate.shell import charged  # noqa: PLC0415 - quick help

    found = []
    for gate, before in _opened:
        with suppress(NoisegateError):
            found.append(charged(before, gate.spent))
    return " ".join(dict.fromkeys(found)) or "Nothing was charged."
