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
