"""Regular expressions: whatever is accepted, the engine compiles, with as many groups as are said."""

import os
import random

import duckdb
import pytest

from noisegate.algebra.patterns import groups_of, require_replacement
from noisegate.errors import Unsupported
from refusals import about

PIECES = [*"ab(((()))))[[]]{{}}|*+?^$.\\\\-:,019é /", "(?:", "(?i)", "[^", "[[:alpha:]", "a-c", "\\d", "\\b", "\\w", "{2}", "{1,3}", "{2,}", "\\.", "\\]", "[a-]", "(?P<n>", "\\1", "\\pN", "\\Q"]  # fmt: skip


def patterns(count, seed):
    chance = random.Random(seed)
    return {
        "".join(chance.choices(PIECES, k=chance.randint(1, 9))) for _ in range(count)
    }  # fmt: skip


def test_what_is_accepted_compiles_and_has_the_groups_that_are_said():
    con, accepted = duckdb.connect(), {}
    for pattern in patterns(200_000 if os.environ.get("NOISEGATE_EXPLORE") else 20_000, 1):
        try:
            accepted[pattern] = groups_of(pattern)
        except Unsupported:
            continue
    assert len(accepted) > 750
    for pattern, groups in accepted.items():
        text = pattern.replace("'", "''")
        con.execute(
            f"SELECT REGEXP_MATCHES('ab', '{text}'), "
            f"REGEXP_REPLACE('ab', '{text}', '\\{min(groups, 9)}')"
        )
        with pytest.raises(duckdb.Error, match="only has"):
            con.execute(f"SELECT REGEXP_REPLACE('ab', '{text}', '\\{groups + 1}')")


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "a)", "[", "[a", "[]", "[b-a]", "*a", "a|*", "a**", "a{2}{3}", "a{1001}", "((a{100}){10}){2}", "a{3,2}", "a{,3}", "a{x}", "{", "\\", "\\q",
        "\\p{Greek}", "\\C", "(?=a)", "(?<n>a)", "(?P<n>a)", "(?i:a)", "a(?i)", "(a)\\1", "^*", "\\b+", "a" * 501, "(" * 300 + ")" * 300 + "{999}", "[[:nope:]]", "[\\b]",
    ],
)  # fmt: skip
def test_what_an_engine_might_not_compile_is_refused_before(pattern):
    with pytest.raises(Unsupported, check=about("pattern")):
        groups_of(pattern)


@pytest.mark.parametrize("text", ["\\2", "\\", "a\\x", "\\é"])
def test_a_replacement_names_groups_that_there_are(text):
    require_replacement("\\0-\\1-\\\\", 1)
    with pytest.raises(Unsupported, check=about("pattern")):
        require_replacement(text, 1)
