"""Accounts of analysts are opened when a service begins: all in one go, and on the usual terms."""

from served import QUICK

from noisegate.server.service import Service


def test_all_shares_are_opened_in_one_go_and_once(clinic):
    """But one whose last day is over; those who ask find theirs on the same terms."""
    text = clinic.read_text().replace(
        "ana = 2 ", 'ana = 2\ncat = { epsilon = 1, until = 2020-01-01 }\ndan = { epsilon = 1, every = "month" } '
    )  # fmt: skip
    clinic.write_text(text)
    service = Service([clinic], settings=QUICK)
    ledger = service._hosted["clinic"].ledger
    writes, real = [], ledger.open_accounts
    ledger.open_accounts = lambda accounts: (writes.append(len(accounts)), real(accounts))
    service.open_shares()
    opened = ledger.accounts()
    assert (len(opened), writes) == (4, [3]), "the data set's, ana's, ben's, dan's of this month"
    head = ledger.head()
    service.open_shares()
    for name in ("ana", "ben", "dan"):
        service.people.add(name, "analyst")
        left = service.view(service.people.caller_of(name), "clinic").gate.remaining
        assert left.epsilon == (2 if name == "ana" else 1)
    assert (ledger.accounts(), ledger.head(), writes) == (opened, head, [3])
    service.close()


def test_a_share_that_cannot_be_opened_keeps_nobody_else_from_asking(clinic):
    service = Service([clinic], settings=QUICK)
    ledger = service._hosted["clinic"].ledger
    root = ledger.balance("clinic")
    ledger.open_account(
        "clinic/ANA", parent="clinic", budget=root.budget, accountant=root.accountant,
        unit=root.unit,
    )  # fmt: skip
    service.open_shares()
    assert ledger.accounts() == ["clinic", "clinic/ANA", "clinic/ben"]
    service.people.add("ben", "analyst")
    assert service.view(service.people.caller_of("ben"), "clinic").gate.remaining.epsilon == 1
    service.close()
