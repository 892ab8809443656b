"""What a statement is, by its first words. Questions are told apart further in `statements`.

Statements are cut apart and read as tokens: text inside quotes and comments is never taken for SQL.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar, Final, NamedTuple, TypeAlias, final

from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from noisegate.errors import Unsupported, UserError
from noisegate.frozen import dataclass, field
from noisegate.server.wire.messages import BINARY, TEXT

_LETTERS_MAX: Final = 100_000
_TOKENS_MAX: Final = 5000  # reading more takes seconds
_BRACKETS_MAX: Final = 100  # which take sqlglot the square of their number
_STATEMENTS_MAX: Final = 100  # in one message
_QUESTION: Final = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "FROM", "("})
_NO_OPS: Final = frozenset({"LISTEN", "UNLISTEN", "NOTIFY", "CHECKPOINT", "LOCK", "LOAD"})
_ENDS: Final = {"COMMIT": "COMMIT", "END": "COMMIT", "ROLLBACK": "ROLLBACK", "ABORT": "ROLLBACK"}


class _Spelled(Postgres):
    """Postgres' tokens. No word swallows the rest of its statement."""

    class Tokenizer(Postgres.Tokenizer):
        """The same for all words."""

        COMMANDS: ClassVar[set[TokenType]] = set()


class ReadOnly(UserError, code="read-only"):  # noqa: N818 - the name is the refusal
    """Something would be written. There is nothing here that can be."""


class Nothing(NamedTuple):
    """An empty statement."""


class Done(NamedTuple):
    """Nothing to do: ``tag`` says so. ``status`` is that of the transaction then, if it changes."""

    tag: str
    status: str | None = None


class Setting(NamedTuple):
    """SET or RESET: a ``value`` of None is the usual one; a ``name`` of "all", all of them.

    A ``local`` one holds to the end of its transaction.
    """

    name: str
    value: str | None
    tag: str = "SET"
    local: bool = False


class Show(NamedTuple):
    """SHOW a setting."""

    name: str


class Question(NamedTuple):
    """A SELECT, about whatever."""

    sql: str


class Explain(NamedTuple):
    """EXPLAIN a question: its plan."""

    sql: str
    json: bool = False


class Copy(NamedTuple):
    """COPY ... TO STDOUT."""

    sql: str
    form: str = "text"
    header: bool = False
    delimiter: str | None = None
    null: str | None = None

    @property
    def code(self) -> int:
        """The format of its columns."""
        return BINARY if self.form == "binary" else TEXT


class Declare(NamedTuple):
    """DECLARE a cursor for a question."""

    name: str
    sql: str


class Fetch(NamedTuple):
    """FETCH so many rows (None: all), or MOVE past them."""

    name: str
    rows: int | None
    move: bool = False


class Forget(NamedTuple):
    """CLOSE a cursor ("P") or DEALLOCATE a statement ("S"); a ``name`` of None is all."""

    kind: str
    name: str | None
    tag: str


Command: TypeAlias = (
    Nothing | Done | Setting | Show | Question | Explain | Copy | Declare | Fetch | Forget
)


@final
@dataclass(slots=True)
class Words:
    """The tokens of one statement, read from the front."""

    sql: str
    tokens: Sequence[Token]
    at: int = field(default=0)

    def peek(self, ahead: int = 0) -> str:
        """The next word in capitals; of a text in quotes, none."""
        place = self.at + ahead
        if place >= len(self.tokens) or self._is_quoted(place):
            return ""
        return str(self.tokens[place].text).upper()

    def _is_quoted(self, place: int) -> bool:
        token = self.tokens[place]
        return self.sql[token.start : token.end + 1] != token.text

    def take(self, *words: str) -> bool:
        """Whether these come next; then they are read."""
        if all(self.peek(ahead) == word for ahead, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def text(self) -> str:
        """The next token as it is, without its quotes."""
        if self.at >= len(self.tokens):
            raise _unreadable()
        token = self.tokens[self.at]
        self.at += 1
        return str(token.text)

    def name(self) -> str:
        """A name, which may have dots; small letters unless it is in quotes."""
        parts = [self._part()]
        while self.take("."):
            parts.append(self._part())
        return ".".join(parts)

    def _part(self) -> str:
        quoted = not self.is_empty and self._is_quoted(self.at)
        return self.text() if quoted else self.text().lower()

    def rest(self) -> str:
        """The SQL from here on."""
        if self.at >= len(self.tokens):
            raise _unreadable()
        return self.sql[self.tokens[self.at].start :]

    @property
    def is_empty(self) -> bool:
        """Whether all was read."""
        return self.at >= len(self.tokens)


def _unreadable() -> Unsupported:
    return Unsupported("The SQL cannot be read.", fix="Check its spelling.", about="syntax")


def tokens_of(sql: str) -> list[Token]:
    """The tokens of SQL as Postgres spells it; not of more than a person or a tool writes."""
    found: list[Token] | None = None
    with suppress(SqlglotError):
        found = list(_Spelled().tokenize(sql)) if len(sql) <= _LETTERS_MAX else []
    brackets = sum(each.token_type is TokenType.L_BRACKET for each in found or ())
    if len(sql) > _LETTERS_MAX or len(found or ()) > _TOKENS_MAX or brackets > _BRACKETS_MAX:
        raise Unsupported("The SQL is too long.", fix="Ask for less at once.", about="size")
    if found is not None:
        return found
    raise Unsupported("The SQL cannot be read.", fix="Check quotes and comments.", about="syntax")


def split(sql: str) -> list[str]:
    """The statements of one message."""
    found, start, some = list[str](), 0, False
    for token in tokens_of(sql):
        if token.token_type is TokenType.SEMICOLON:
            if some:
                found.append(sql[start : token.start])
            start, some = token.end + 1, False
        else:
            some = True
    if some:
        found.append(sql[start:])
    if len(found) > _STATEMENTS_MAX:
        raise Unsupported(
            f"More than {_STATEMENTS_MAX} statements were sent at once.", fix="Send fewer."
        )
    return found


def command_of(sql: str) -> Command:
    """What one statement is."""
    words = Words(sql, tokens_of(sql))
    if words.is_empty:
        return Nothing()
    first = words.peek()
    if first in _QUESTION:
        return Question(sql)
    words.at += 1
    found = _command(first, words)
    if found is None:
        raise ReadOnly(
            f"{first} is not possible: nothing can be written here.", fix="Ask with SELECT."
        )
    return found


def _command(first: str, words: Words) -> Command | None:  # noqa: C901, PLR0911 - one for each word
    match first:
        case "SET":
            return _set(words)
        case "RESET":
            return Setting(words.name(), None, "RESET")
        case "SHOW":
            return _show(words)
        case "EXPLAIN":
            return _explain(words)
        case "COPY":
            return _copy(words)
        case "DECLARE":
            return _declare(words)
        case "FETCH" | "MOVE":
            return _fetch(words, move=first == "MOVE")
        case "CLOSE":
            return Forget("P", None if words.take("ALL") else words.name(), "CLOSE CURSOR")
        case "DEALLOCATE":
            words.take("PREPARE")
            return Forget("S", None if words.take("ALL") else words.name(), "DEALLOCATE")
        case "DISCARD":
            return Setting("all", None, "DISCARD ALL")
    if first in _NO_OPS:
        return Done(first)
    return _transaction(first, words)


def _transaction(first: str, words: Words) -> Command | None:
    if first == "BEGIN" or (first == "START" and words.peek() == "TRANSACTION"):
        return Done("BEGIN" if first == "BEGIN" else "START TRANSACTION", "T")
    if first == "SAVEPOINT":
        return Done("SAVEPOINT")
    if first == "RELEASE":
        return Done("RELEASE")
    if first not in _ENDS:
        return None
    words.take("TRANSACTION") or words.take("WORK")
    return Done("ROLLBACK", "T") if words.take("TO") else Done(_ENDS[first], "I")


def _set(words: Words) -> Command:
    if words.take("SESSION", "CHARACTERISTICS") or words.take("TRANSACTION"):
        return Done("SET")
    local = not words.take("SESSION") and words.take("LOCAL")
    if words.peek() in ("AUTHORIZATION", "ROLE"):
        raise Unsupported(
            "A session cannot become somebody else's.", fix="Connect as them, with their token."
        )
    if words.take("TIME", "ZONE"):
        return Setting("timezone", words.text(), local=local)
    if words.take("NAMES"):
        return Setting("client_encoding", words.text())
    name = words.name()
    if not (words.take("=") or words.take("TO")):
        raise _unreadable()
    if words.take("DEFAULT"):
        return Setting(name, None, local=local)
    return Setting(name, _value(words), local=local)


def _value(words: Words) -> str:
    """A value, or several with commas between them, as one text."""
    parts: list[str] = []
    while not words.is_empty:
        parts.append("-" if words.take("-") else words.text())
    return "".join(", " if part == "," else part for part in parts)


def _show(words: Words) -> Show:
    if words.take("TRANSACTION", "ISOLATION", "LEVEL"):
        return Show("transaction_isolation")
    if words.take("TIME", "ZONE"):
        return Show("timezone")
    return Show(words.name())


def _explain(words: Words) -> Explain:
    options = ""
    if words.peek() == "(" and words.peek(1) not in _QUESTION:
        while not words.take(")"):
            options += f" {words.text().upper()}"
    while words.peek() in ("ANALYZE", "ANALYSE", "VERBOSE"):
        options += f" {words.text().upper()}"
    if re.search(r"\bANALY[ZS]E\b(?! (FALSE|OFF|0))", options):
        raise Unsupported(
            "EXPLAIN ANALYZE would run the query.", fix="Use EXPLAIN.", about="explain"
        )
    return Explain(words.rest(), json="FORMAT JSON" in options)


def _copy(words: Words) -> Copy:
    if words.take("("):
        first, depth = words.at, 1
        while depth:
            depth += {"(": 1, ")": -1}.get(words.peek(), 0)
            words.text()
        sql = words.sql[words.tokens[first].start : words.tokens[words.at - 1].start]
    else:
        sql = _copied_table(words)
    if not (words.take("TO") and words.take("STDOUT")):
        raise ReadOnly("Only COPY … TO STDOUT is possible.", fix="Use COPY (SELECT …) TO STDOUT.")
    return _copy_options(Copy(sql), words)


def _copied_table(words: Words) -> str:
    """COPY t (a, b): a question with the names in quotes."""
    names = [words.text()]
    while words.take("."):
        names.append(words.text())
    columns = []
    if words.take("("):
        while not words.take(")"):
            columns.append(words.text())
            words.take(",")
    table = ".".join(map(_quoted, names))
    return f"SELECT {', '.join(map(_quoted, columns)) or '*'} FROM {table}"  # noqa: S608 - quoted


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _copy_options(copy: Copy, words: Words) -> Copy:
    form, header, delimiter, null = copy.form, False, copy.delimiter, copy.null
    words.take("WITH")
    words.take("(")
    while not words.is_empty:
        word = words.text().upper()
        if word in (",", ")"):
            continue
        if word in ("CSV", "BINARY", "TEXT"):
            form = word.lower()
        elif word == "FORMAT":
            form = words.text().lower()
        elif word == "HEADER":
            header = not (words.take("FALSE") or words.take("OFF") or words.take("0"))
            words.take("TRUE") or words.take("ON") or words.take("1") or words.take("MATCH")
        elif word in ("DELIMITER", "NULL"):
            words.take("AS")
            value = words.text()
            delimiter, null = (value, null) if word == "DELIMITER" else (delimiter, value)
        elif word in ("ENCODING", "QUOTE", "ESCAPE", "FREEZE"):
            words.text()
        else:
            raise Unsupported(f"COPY has no option {word}.", fix="Use FORMAT, HEADER, DELIMITER.")
    if form not in ("text", "csv", "binary"):
        raise Unsupported(f"COPY has no format {form}.", fix="Use text, csv or binary.")
    if delimiter is not None and len(delimiter) != 1:
        raise Unsupported("A delimiter is one letter.", fix="Use ','.")
    return Copy(copy.sql, form, header, delimiter, null)


def _declare(words: Words) -> Declare:
    name = words.name()
    while not words.take("FOR"):
        words.text()
    return Declare(name, words.rest())


def _fetch(words: Words, *, move: bool) -> Fetch:
    rows: int | None = 1
    words.take("FORWARD")
    if words.take("ALL"):
        rows = None
    elif words.peek().isdigit():
        rows = int(words.text())
    elif not words.take("NEXT") and words.peek() in ("BACKWARD", "PRIOR", "ABSOLUTE", "RELATIVE"):
        raise Unsupported("Cursors go forward only.", fix="Use FETCH n FROM.")
    if not words.take("FROM"):
        words.take("IN")
    return Fetch(words.name(), rows, move)
