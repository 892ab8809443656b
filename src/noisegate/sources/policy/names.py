"""What names suggest: guesses for drafts and hints, and whether two tables name the same people.

Only `whose` decides something, and in doubt that nobody is meant: then the steward has to say it.
"""

import re
from typing import Final

PERSONS: Final = (
    "patient", "person", "customer", "client", "user", "member", "subject", "participant",
    "respondent", "employee", "worker", "student", "pupil", "citizen", "resident", "household",
    "donor", "player", "guest", "visitor", "driver", "rider", "subscriber", "buyer", "borrower",
    "account", "device",
)  # fmt: skip
_NUMBERED: Final = frozenset({"id", "no", "nr", "num", "number", "key", "code", "uuid", "uid", ""})
_ANYBODY: Final = frozenset({  # ids of such are of anything
    "row", "record", "entry", "line", "item", "object", "entity", "thing", "node", "table", "case",
    "primary", "foreign", "external", "internal", "unique", "global", "local", "source", "target",
    "system", "surrogate", "hash", "ref", "reference", "own", "old", "new", "ext", "int", "src",
    "pk", "fk", "id", "uid", "guid", "uuid", "number", "no", "nr", "num", "key", "code",
})  # fmt: skip
_IDENTIFYING: Final = frozenset({
    "name", "firstname", "lastname", "surname", "forename", "fullname", "username", "email", "mail",
    "phone", "telephone", "mobile", "fax", "ssn", "passport", "address", "street", "iban", "ip",
    "license", "licence", "plate", "login", "password", "secret", "token", "photo", "signature",
    "comment", "comments", "note", "notes", "latitude", "longitude", "lat", "lon", "lng",
})  # fmt: skip


def words(name: str) -> list[str]:
    """The words of a name, in lower case.

    >>> words("patientHomeAddress_2")
    ['patient', 'home', 'address', '2']
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W_]+", spaced.lower())


def singular(name: str) -> str:
    """A table's name for one of its rows.

    >>> singular("visits"), singular("diagnoses"), singular("companies"), singular("people")
    ('visit', 'diagnosis', 'company', 'person')
    """
    text = "_".join(words(name))
    for ending, instead in (("people", "person"), ("ies", "y"), ("oses", "osis"), ("ss", "ss")):
        if text.endswith(ending):
            return text.removesuffix(ending) + instead
    return text.removesuffix("s")


def stem(column: str) -> str:
    """What a column numbers, or nothing if it does not look like a number of something.

    >>> stem("visit_id"), stem("patientId"), stem("ward"), stem("id"), stem("userid")
    ('visit', 'patient', '', '', 'user')
    """
    parts = words(column)
    if len(parts) > 1 and parts[-1] in _NUMBERED:
        return "_".join(parts[:-1])
    if len(parts) > 1 and parts[0] == "id":
        return "_".join(parts[1:])
    return next((p for p in PERSONS if parts == [p + "id"]), "")


def person(column: str) -> str:
    """The noun of a person that a column names, or nothing.

    >>> person("patient_id"), person("customer"), person("customer_name"), person("visit_id")
    ('patient', 'customer', '', '')
    """
    noun = stem(column) or "_".join(words(column))
    return noun if noun in PERSONS else ""


def whose(column: str) -> str:
    """Whose ids a column says it holds, or nothing: then equal names do not imply equal people.

    >>> whose("patient_id"), whose("customer"), whose("id"), whose("pid"), whose("record_no")
    ('patient', 'customer', '', '', '')
    """
    noun = stem(column) or person(column)
    return "" if len(noun) < 3 or noun.rpartition("_")[2] in _ANYBODY else noun


def is_identifying(column: str) -> bool:
    """Whether a column sounds as if it names, locates or describes one person freely.

    >>> is_identifying("home_address"), is_identifying("eMail"), is_identifying("age")
    (True, True, False)
    """
    parts = words(column)
    return not _IDENTIFYING.isdisjoint(parts) or not _IDENTIFYING.isdisjoint({"".join(parts)})
