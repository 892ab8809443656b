"""What stewards do with a policy; the command line reaches the policy room through here."""

import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, final

from noisegate.accounting.accountants import accountant_named
from noisegate.errors import OperatorError, PolicyError, SpecError, Unsupported
from noisegate.exact import Number, fraction
from noisegate.files import sync_directory
from noisegate.frozen import dataclass
from noisegate.ledger.rules import require_text
from noisegate.privacy.loss import ApproxDP
from noisegate.root.hosting import Hosted, tables_of
from noisegate.root.parts import account_name, open_analyst
from noisegate.sources.engines import engine_of
from noisegate.sources.policy.form import schema
from noisegate.sources.policy.policy import read_policy, read_text
from noisegate.sources.policy.purposes import PURPOSE
from noisegate.sources.policy.steward import STEWARD

if TYPE_CHECKING:
    from noisegate.sources.policy.finding import Finding
    from noisegate.sources.policy.policy import Policy


def check_policy(file: str | Path) -> "list[Finding]":
    """What is wrong or costly in a policy, the gravest first. Reads no row of a private table."""
    from noisegate.planning.calibrate import order_error  # noqa: PLC0415 - stewards only
    from noisegate.steward.check import check  # noqa: PLC0415

    policy = read_policy(file)
    data, tables = tables_of(policy)
    accountant = accountant_named(policy.accountant)

    def error(reach: Fraction, epsilon: Fraction) -> int:
        rho = accountant.rho(epsilon, policy.budget)
        return order_error(reach, epsilon, rho, confidence="0.95")

    stored = engine_of(table.origin for table in tables.values()).stored_kinds(data)
    return check(policy, tables, stored=stored, error=error)


def check_rows(file: str | Path) -> "list[Finding]":
    """What the rows do not say as the policy has it, with exact counts: private, for the steward.

    Values that cannot be read and so count as NULL, lie outside bounds, or are not declared keys;
    and rows without an owner.
    """
    from noisegate.sources.duckdb.unread import unread  # noqa: PLC0415 - stewards only

    data, tables = tables_of(read_policy(file))
    if any("://" in table.origin for table in tables.values()):
        raise Unsupported(
            "Rows of a server are not looked at beside their policy.",
            fix="Check files in this way; of a server, ask questions in SQL yourself.",
            about="engine",
        )
    return unread(data, tables)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Amendment:
    """Another budget of a data set, or another share of it, ready to be made.

    ``before`` is None of an analyst who had no share. ``accounts`` are those of the ledger that
    get ``after``; where there is none yet, one is opened with it.
    """

    hosted: Hosted
    base: "Policy"
    policy: "Policy"
    was: str  # the policy's text, as it was read
    text: str
    analyst: str | None
    before: ApproxDP | None
    after: ApproxDP
    accounts: tuple[str, ...]

    def make(self, reason: str) -> None:
        """Write it into the ledger with its reason, and then into the policy.

        Whatever can be refused is refused before either is changed. Between the two, the policy and
        the ledger differ, and nothing opens: whoever is interrupted there finishes by hand, and no
        more is spent than the ledger says.
        """
        require_text(reason, "reason")
        hosted, file = self.hosted, self.policy.file
        if hosted.policy is not self.base:
            raise _changed("Load the page again, then repeat.")
        with _written(file, self.text) as beside:
            if file.read_text(encoding="utf-8") != self.was:  # by hand, or by another process
                raise _changed("Start the service again first.")
            if self.analyst is not None and not self.accounts:
                self._open(self.analyst, reason)
            hosted.ledger.change_budgets(self.accounts, self.after, reason=reason)
            beside.replace(file)
            sync_directory(file.parent)
        hosted.policy = self.policy

    def _open(self, analyst: str, reason: str) -> None:
        """The first account of an analyst; refuses a name that could be taken for another one."""
        name, window = self.policy.name, self.policy.windows.get(analyst)
        own = None if window is None else window.label(datetime.now(UTC).date())
        ledger = self.hosted.ledger
        open_analyst(ledger, name, analyst=analyst, share=self.after, window=own)
        ledger.note(f"a share of {self.after} for {analyst!r}: {reason}")


@contextmanager
def _written(file: Path, text: str) -> Iterator[Path]:
    """A new file beside a policy that takes its place; gone again if it does not."""
    beside = None
    try:
        held, name = mkstemp(prefix=f".{file.name}.", dir=file.parent)
        beside = Path(name)
        with os.fdopen(held, "w", encoding="utf-8", newline="") as new:
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
        shutil.copymode(file, beside)
        yield beside
    except OSError:
        raise OperatorError(
            f"The policy {file.name!r} cannot be written.",
            fix="Let the service write to its folder, or change the file and run: noisegate ledger "
            "budget.",
            about="policy",
        ) from None
    finally:
        if beside is not None:
            beside.unlink(missing_ok=True)


def amendment(hosted: Hosted, epsilon: Number, analyst: str | None, **terms: Any) -> Amendment:  # noqa: ANN401 - of a share
    """Another ε for a data set, or for the share of an analyst; nothing is changed yet.

    ``terms`` of a share: ``every`` and ``until``. δ stays. The policy that would result is checked
    as any other.
    """
    from noisegate.steward.amend import amended, share_with  # noqa: PLC0415

    old = read_policy(hosted.policy.file)
    if old != hosted.policy:
        raise _changed("Start the service again first.")
    exact = decimal(epsilon)
    text = was = old.file.read_text(encoding="utf-8")
    if analyst is None:
        text = amended(text, ("budget", "epsilon"), exact)
    elif analyst == STEWARD and old.steward is not None:
        text = amended(text, ("steward", "epsilon"), exact)
    elif not old.analysts:
        raise PolicyError(
            "This policy lists no analysts: each may ask from all of the budget.",
            fix="List all of them under [analysts] of the policy, then start the service again.",
            about="share",
        )
    else:
        said = tomllib.loads(text, parse_float=Decimal)["analysts"].get(analyst)
        text = amended(text, ("analysts", analyst), share_with(said, epsilon=exact, **terms))
    new = read_text(old.file, text)
    after = new.budget if analyst is None else new.share_of(analyst)
    listed = {**old.analysts, STEWARD: old.steward}
    before = old.budget if analyst is None else listed.get(analyst)
    return Amendment(
        hosted=hosted, base=hosted.policy, policy=new, was=was, text=text, analyst=analyst,
        before=before, after=after, accounts=tuple(_accounts(hosted, new, analyst)),
    )  # fmt: skip


def _changed(fix: str) -> PolicyError:
    return PolicyError("The policy was changed meanwhile.", fix=fix, about="changed")


def _accounts(hosted: Hosted, new: "Policy", analyst: str | None) -> Iterator[str]:
    """The accounts of the ledger that follow."""
    known, name, today = hosted.ledger.accounts(), new.name, datetime.now(UTC).date()
    if analyst is None:
        yield name
        looks = [] if new.steward is None else [account_name(name, STEWARD, "")]
        kept = {name, *looks, *_purposes(hosted, new)}
        if not new.analysts:  # each may ask from all of it
            yield from (a for a in known if a.startswith(f"{name}/") and a not in kept)
        return
    window = new.windows.get(analyst)
    own = None if window is None else window.label(today)
    above = [
        account_name(name, f"{PURPOSE}{each.name}", each.window.label(today) or "")
        for each in new.purposes.values()
    ]
    for each in [name, *above]:  # the share of all purposes, and what each may take of it
        if (account := account_name(each, analyst, own or "")) in known:
            yield account


def _purposes(hosted: Hosted, new: "Policy") -> Iterator[str]:
    """The accounts of purposes, of any window, which have budgets of their own.

    Also of purposes that the policy has no more: somebody asked for them, so others hang below.
    """
    parents = {each: hosted.ledger.balance(each).parent for each in hosted.ledger.accounts()}
    for each, parent in parents.items():
        named = parent == new.name and each.startswith(f"{new.name}/{PURPOSE}")
        if named and (new.purposes or each in parents.values()):
            yield each


def decimal(said: Number) -> Decimal:
    """A number that a policy can hold: with an end."""
    found = fraction(said, name="epsilon")
    try:
        exact = Decimal(str(said))
    except ArithmeticError:
        exact = Decimal(0)
    if not exact.is_finite() or exact <= 0 or Fraction(exact) != found:
        raise SpecError("The ε is not a decimal number above 0.", fix="For example: 2.5.")
    return exact


def policy_page(file: str | Path) -> str:
    """A policy as a page for people, in Markdown."""
    from noisegate.steward.page import page  # noqa: PLC0415

    return page(read_policy(file))


def policy_schema() -> Mapping[str, Any]:
    """The JSON Schema of a policy, for editors."""
    return schema()
