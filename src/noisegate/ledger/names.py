"""Names of accounts that cannot be taken for one another.

An analyst's account hangs below a data set's and is called ``dataset/analyst``. A new name must be
told from every other one by whoever reads it: no root that looks like a child, no child that looks
like another data set's, no two names that differ only in case, in how a letter is encoded, or by a
letter of another alphabet. Accounts that were opened before this was asked for stay as they are.
"""

from collections.abc import Iterable
from typing import Final
from unicodedata import category, name, normalize

from noisegate.errors import PolicyError
from noisegate.ledger.account import Account

# letters of other alphabets that are drawn like Latin ones
_LIKE: Final = str.maketrans(
    "авекмнорстухіјѕԁԛԝһӏαβεηικνοπρτυχγωΑΒΕΖΗΙΚΜΝΟΡΤΥΧАВЕКМНОРСТУХІЈЅɑɡɩıℓ|",
    "abekmhopctyxijsdqwhlabenikvonptuxywabezhikmnoptyxabekmhopctyxijsagiill",
)

_SLASHES: Final = "\\\u2044\u2215\u29f8"  # drawn like the one that stands between names


def require_account_name(account: Account, others: Iterable[Account]) -> None:
    """Refuse a new account whose name could be read as another one."""
    own = account.name
    composed = account.parent is None or own == normalize("NFKC", own)  # a root has a file's name
    if not composed or own != own.strip() or _has_hidden(own):
        raise _refused(own, "is not in its plain form", "Use letters without hidden marks")
    parts = own.split("/")
    odd = any(part in ("", ".", "..") or part != part.strip() for part in parts)
    if odd or any(slash in own for slash in _SLASHES):
        raise _refused(own, "reads like a path", "Use a plain name")
    if account.parent is None and len(parts) > 1:
        raise _refused(own, "looks like an analyst's account", "Name the data set without '/'")
    if account.parent is not None and len(parts) > 1:
        above, _, last = own.rpartition("/")
        if above != account.parent:
            raise _refused(own, f"is not below {account.parent!r}", f"Use {account.parent}/{last}")
    twin = next((each.name for each in others if _drawn(each.name) == _drawn(own)), None)
    if twin is not None:
        raise _refused(own, f"is easily taken for {twin!r}", "Use that name, or another one")


def _drawn(text: str) -> str:
    """What a name looks like, roughly: names that look alike have the same."""
    return normalize("NFKC", normalize("NFKC", text).translate(_LIKE).casefold()).translate(_LIKE)


def _has_hidden(text: str) -> bool:
    return any(
        category(letter) in ("Cf", "Cc", "Cn", "Co") or not name(letter, "") for letter in text
    )


def _refused(own: str, why: str, fix: str) -> PolicyError:
    return PolicyError(f"The account name {own!r} {why}.", fix=f"{fix}.", about="name")
