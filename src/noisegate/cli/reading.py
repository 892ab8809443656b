"""Texts that commands read: questions in files."""

from pathlib import Path

from noisegate.errors import SpecError


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
