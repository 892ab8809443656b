"""Files that commands read and write; what cannot be written is refused before it is paid for."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from noisegate.errors import SpecError

if TYPE_CHECKING:
    from noisegate.ledger.signing import Signer


def read_text(file: Path) -> str:
    """A file of text."""
    text = None
    try:
        text = file.read_text(encoding="utf-8") if file.is_file() else None
    except (OSError, ValueError):  # no UTF-8 is a ValueError, as is a NUL in its name
        text = None
    if text is None:
        raise SpecError(f"{file.name!r} cannot be read.", fix="Give a text file.")
    return text


def questions_in(file: Path) -> list[str]:
    """One question a line, or several lines up to a semicolon; lines after -- are left out."""
    lines = [line for line in read_text(file).splitlines() if not line.lstrip().startswith("--")]
    plain = "\n".join(lines)
    parts = plain.split(";") if ";" in plain else lines
    found = [part.strip() for part in parts if part.strip()]
    if not found:
        raise SpecError(f"{file.name!r} contains no question.", fix="Write one question per line.")
    return found


def require_writable(files: list[Path], endings: tuple[str, ...]) -> None:
    """Refuse a file that the release cannot be written to, before it is paid for."""
    from noisegate.shell import require_writable as require  # noqa: PLC0415 - quick help

    for path in files:
        require(path, endings)


def signer_for(
    key: Path | None, files: Sequence[Path] | None, *, signs_answers: bool = False
) -> "Signer | None":
    """The key that signs files, if one is named; refuses before anything is paid for."""
    if key is None:
        return None
    from noisegate.desk.signed import ANSWERS, RELEASES, require_signable  # noqa: PLC0415
    from noisegate.ledger.signing import Signer  # noqa: PLC0415

    for file in files or []:
        require_signable(file, ANSWERS if signs_answers else RELEASES)
    return Signer.load(key)


@contextmanager
def saved(files: Sequence[Path] | None, write: Callable[[Path], object]) -> Iterator[None]:
    """Write files, and then run the block, which shows what is in them.

    Whoever reads along may stop; and a file that fails keeps nobody from seeing what was paid for.
    """
    failed: list[Exception] = []
    for file in files or []:
        try:
            write(file)
        except Exception as wrong:  # noqa: BLE001 - raised below
            failed.append(wrong)
    yield
    if failed:
        raise failed[0]
