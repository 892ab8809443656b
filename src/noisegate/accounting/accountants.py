"""The accountants that may authorise, by the name a policy or a ledger writes."""

from noisegate.accounting.accountant import Accountant
from noisegate.accounting.pure import PureAccountant
from noisegate.errors import SpecError

_ZCDP = "zcdp"
_RENYI = "renyi-"


def accountant_named(name: str) -> Accountant:
    """The accountant of this name.

    >>> accountant_named("zcdp").name, accountant_named("renyi-16").name
    ('zcdp', 'renyi-16')
    """
    if name == PureAccountant.name:
        return PureAccountant()
    if name == _ZCDP:
        from noisegate.accounting.zcdp import ZCDPAccountant  # noqa: PLC0415 - loaded when used

        return ZCDPAccountant()
    if isinstance(name, str) and name.startswith(_RENYI):
        from noisegate.accounting.renyi import RenyiAccountant  # noqa: PLC0415 - loaded when used

        return RenyiAccountant(name.removeprefix(_RENYI))
    raise SpecError(
        f"There is no accountant named {name!r}.",
        fix="Use 'pure', 'zcdp' or 'renyi-16'.",
        about="accountant",
    )
