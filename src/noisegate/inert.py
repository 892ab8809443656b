"""Text that does nothing where it is shown: in a terminal, a page, a picture, a spreadsheet.

Keys come from rows, names from files, SQL from strangers. What they hold is written here so that no
terminal obeys it, no browser runs it and no spreadsheet computes it.
"""

import json
import re
from html import escape
from typing import Any, Final

# controls (C0, C1), marks that turn the direction of text, line separators, what is not a character
_ACTIVE: Final = (
    "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_UNSEEN: Final = re.compile(f"[\x00-\x1f{_ACTIVE}]")
_ON_SCREEN: Final = re.compile(f"[\x00-\x08\x0b-\x1f{_ACTIVE}]")
_IN_JSON: Final = re.compile(f"[{_ACTIVE}]")
_TAG: Final = re.compile(r"<(?=[/!?A-Za-z])")
_MARKS: Final = re.compile(r"[\\`*\[\]|~$]|(?<!\w)_|_(?!\w)")
_LINKS: Final = re.compile(r"\b(https?|ftp|mailto|xmpp):|\bwww\.", re.IGNORECASE)
# as OWASP lists them: how a formula begins, also in the wide letters of East Asian keyboards
FORMULA: Final = "^('*[=+@\t\r\n\uff0b\uff0d\uff1d\uff20-])"  # also a pattern of RE2
_FORMULA: Final = re.compile(FORMULA)
_QUOTED_FORMULA: Final = re.compile(FORMULA.replace("'*", "'+"))


def _escaped(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()


def line(text: str) -> str:
    r"""A text on one line, whose controls are seen and not obeyed.

    >>> print(line("\x1b[31mred\n"))
    \x1b[31mred\n
    """
    return _UNSEEN.sub(_escaped, text)


def lines(text: str) -> str:
    """The same of several lines, which stay so; tabs stay as well."""
    return _ON_SCREEN.sub(_escaped, text)


def html(text: str) -> str:
    """A text inside of an element or an attribute."""
    return escape(line(text))


def label(text: str) -> str:
    """A text in a picture, whose description may stand inside of a script.

    >>> label("</script>"), label("<18")
    ('‹/script>', '<18')
    """
    return _TAG.sub("‹", line(text))


def markdown(text: str) -> str:
    r"""A text inside of a paragraph or a cell of Markdown.

    >>> print(markdown("a|b <i>_c_ d_e"))
    a\|b &lt;i&gt;\_c\_ d_e
    """
    plain = _MARKS.sub(lambda found: f"\\{found.group()}", line(text))
    plain = escape(plain, quote=False)
    return _LINKS.sub(lambda found: f"{found.group()[:-1]}&#{ord(found.group()[-1])};", plain)


def code(text: str) -> str:
    """A text as code inside of a line of Markdown, between more backticks than it holds."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    room = " " if text[:1] in "` " or text[-1:] in "` " else ""
    return f"{fence}{room}{line(text)}{room}{fence}"


def fenced(text: str, language: str) -> str:
    """A text as a block of code in Markdown."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{lines(text)}\n{fence}"


def json_text(
    value: Any,  # noqa: ANN401 - plain values
    *,
    indent: int | None = None,
    sort_keys: bool = False,
) -> str:
    r"""JSON of which nothing but letters is shown as it is; it means the same.

    >>> print(json_text(["\x9b31m", "ε"]))
    ["\u009b31m", "ε"]
    """
    text = json.dumps(
        value, ensure_ascii=False, allow_nan=False, indent=indent, sort_keys=sort_keys
    )
    return _IN_JSON.sub(lambda found: json.dumps(found.group())[1:-1], text)


def cell(text: str) -> str:
    """A text in a comma-separated file: what a spreadsheet would compute begins with an apostrophe.

    >>> cell("=1+1"), cell("'=1+1"), cell("north"), cell("it's")
    ("'=1+1", "''=1+1", 'north', "it's")
    """
    return _FORMULA.sub(r"'\1", text)


def from_cell(text: str) -> str:
    """What `cell` was made of.

    >>> from_cell("'=1+1"), from_cell("'north'")
    ('=1+1', "'north'")
    """
    return text[1:] if _QUOTED_FORMULA.match(text) else text
