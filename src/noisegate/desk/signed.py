"""Signed statements: cards, answers and saved releases that anybody can check without the ledger.

A signed statement is its JSON object with one more member, ``signature``: the public key, the
algorithm and the value. What is signed is the canonical text of all other members, as in RFC 8785:
members by name, no spaces, numbers in their shortest form. So spaces, the order of members and the
way a number is spelled may change, and nothing else. One thing differs from the RFC: whole numbers
beyond 2^53 keep all their digits, for a signature must not hold for a number that was rounded.

A signature says who stated something. Whether the ledger has it is another question, which
`noisegate.desk.card.verify` answers.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from noisegate.desk.noisy import NoisyTable
from noisegate.errors import SpecError
from noisegate.ledger.signing import ALGORITHM, Signer, holds

FORMAT: Final = "noisegate-signed/1"
ANSWER: Final = "noisegate-answer/1"
RESULT: Final = "noisegate-result/1"  # of orders that give no table, such as a fitted model
CARD_ENDING: Final = ".card.json"
ANSWERS: Final = (CARD_ENDING, ".json")
RELEASES: Final = (*ANSWERS, ".parquet")
_DEEPEST: Final = 100
_AS_WRITTEN: Final = "Give the file as it was written."


def signed(record: Mapping[str, Any], signer: Signer) -> dict[str, Any]:
    """A statement with its signature; one that it has already is replaced."""
    stated = {name: value for name, value in record.items() if name != "signature"}
    stated["signature"] = {"key": signer.public, "alg": ALGORITHM}
    stated["signature"]["value"] = signer.sign(_message(stated))
    return stated


def signed_answer(answer: NoisyTable, record: Mapping[str, Any], signer: Signer) -> dict[str, Any]:
    """An answer's own record with the question, what it is about, and a signature."""
    if answer.practice:
        raise SpecError(
            "Practice numbers are made up and are not signed.",
            fix="Ask without practice, or leave out the key.",
            about="practice",
        )
    about = {"format": ANSWER, "sql": answer.sql, "scope": answer.guarantee.scope}
    return signed({**about, "requests": list(answer.request_ids), **record}, signer)


def require_signable(file: str | Path, endings: tuple[str, ...] = RELEASES) -> None:
    """Refuse a file that has no place for a signature, before anything is paid for."""
    if not Path(file).name.lower().endswith(endings):
        raise SpecError(
            f"{Path(file).name!r} has no place for a signature.",
            fix=f"Use {', '.join(endings)}, or leave out the key.",
            about="signed-ending",
        )


def signer_of(record: Mapping[str, Any], key: str | None = None) -> str:
    """The public key that signed a statement; with a ``key``, it must be that one.

    Without one, this says only that the statement is as its signer made it, whoever that is.
    """
    signature = record.get("signature")
    if signature is None:
        raise SpecError(
            "This statement is not signed.",
            fix="Ask for a signed one, or compare it with the ledger.",
            about="unsigned",
        )
    if not isinstance(signature, Mapping) or signature.keys() != {"key", "alg", "value"}:
        raise _invalid()
    if key is not None and signature["key"] != key:
        raise SpecError(
            "This statement is signed by another key.",
            fix="Give the public key of the steward who made it; if it is the right one, do not "
            "trust the statement.",
            about="other-key",
        )
    if signature["alg"] != ALGORITHM or not holds(
        signature["key"], signature["value"], _message(record)
    ):
        raise _invalid()
    return str(signature["key"])


def read_statement(text: str) -> dict[str, Any]:
    """A JSON object, of which no two readers can understand different things.

    Names that occur twice, NaN and numbers out of range are refused: readers differ about them.
    """
    try:
        record = json.loads(text, object_pairs_hook=members, parse_constant=no_constant)
        canonical_json(record)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise SpecError("This is not a statement in JSON.", fix=_AS_WRITTEN, about="statement")
    return record


def canonical_json(value: object) -> str:
    """The one text of a JSON value.

    >>> canonical_json({"b": 1.0, "a": [1e21, "ε"], "c": -0.0})
    '{"a":[1e+21,"ε"],"b":1,"c":0}'
    """
    return _text(value, 0)


def _text(value: object, depth: int) -> str:
    if depth > _DEEPEST:
        raise ValueError("too deep")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        value.encode()  # half of a pair of UTF-16 is a ValueError
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list | tuple):
        return f"[{','.join(_text(each, depth + 1) for each in value)}]"
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        pairs = (f"{_text(name, depth)}:{_text(value[name], depth + 1)}" for name in names)
        return f"{{{','.join(pairs)}}}"
    raise ValueError("not a JSON value")


def _number(value: float) -> str:
    """As ECMAScript writes a number: the shortest digits that mean it."""
    if not math.isfinite(value):
        raise ValueError("not a JSON number")
    if value == 0:
        return "0"
    shortest = repr(abs(value))
    digits, _, power = shortest.partition("e")
    whole, _, part = digits.partition(".")
    point = len(whole) + int(power or 0)  # how many digits stand before the point
    found = (whole + part).lstrip("0")
    point -= len(whole + part) - len(found)
    found = found.rstrip("0")
    sign = "-" if value < 0 else ""
    if len(found) <= point <= 21:
        return f"{sign}{found}{'0' * (point - len(found))}"
    if 0 < point <= 21:
        return f"{sign}{found[:point]}.{found[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{found}"
    tail = f".{found[1:]}" if len(found) > 1 else ""
    return f"{sign}{found[0]}{tail}e{point - 1:+d}"


def _message(record: Mapping[str, Any]) -> bytes:
    """All that is signed: also who signs, and how."""
    who = {name: value for name, value in record["signature"].items() if name != "value"}
    try:
        return f"{FORMAT}\n{canonical_json({**record, 'signature': who})}".encode()
    except (ValueError, RecursionError):
        raise _invalid() from None


def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Those of an object, each once."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def no_constant(text: str) -> NoReturn:
    """NaN and infinities are refused: readers differ about them."""
    raise ValueError(text)


def _invalid() -> SpecError:
    return SpecError(
        "The signature is not valid: the statement was changed, or is not whole.",
        fix=_AS_WRITTEN,
        about="signature",
    )
