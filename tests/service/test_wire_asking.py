"""Questions through a Postgres client: what is charged, what is told, what is refused."""

import struct
from decimal import Decimal
from fractions import Fraction

import psycopg
import pytest
from wires import Raw, Wire, errors, fields, message, rows

from noisegate.server.settings import Settings

COUNT = "SELECT ward, COUNT(*) AS n FROM visits WHERE cost > {} GROUP BY ward ORDER BY ward"
SYNC = message(b"S")


@pytest.fixture
def session(wire):
    with psycopg.connect(wire.dsn(), autocommit=True) as made:
        yield made


def notices(session):
    said = []
    session.add_notice_handler(
        lambda note: said.append(f"{note.message_primary}\n{note.message_detail}")
    )
    return said


def test_a_hint_is_charged_once_and_told(wire, session):
    said, before = notices(session), wire.left()
    first = session.execute(COUNT.format(1) + " /* noisegate: epsilon=0.25 */").fetchall()
    assert before - wire.left() == Fraction("0.25")
    again = session.execute(COUNT.format(1) + " /* noisegate: epsilon=0.25 */").fetchall()
    assert again == first
    assert before - wire.left() == Fraction("0.25")
    assert "price ε = 0.25 · left" in said[0]
    assert "n ± " in said[0]
    assert "free" in said[1]


def test_the_numbers_are_those_of_the_gate(wire, session):
    sql = COUNT.format(2)
    shown = session.execute(sql + " /* noisegate: epsilon=2 */").fetchall()
    found = wire.gate().sql(sql, epsilon=2)
    assert found.free
    assert [tuple(row) for row in found.rows] == shown


def test_numbers_of_much_epsilon_are_close_to_plain_sql(wire, session):
    """At ε = 1000 for 4 counts of at most 20 rows: off by more than 1 with chance below e^-10."""
    session.execute("SET noisegate.epsilon = 1000")
    shown = session.execute("SELECT COUNT(*) AS n FROM patients").fetchone()[0]
    exact = len((wire.folder / "clinic" / "patients.csv").read_text().splitlines()) - 1
    assert abs(shown - exact) <= 1


def test_a_price_of_the_session_is_used_and_a_hint_wins(wire, session):
    session.execute("SET noisegate.epsilon = 0.5")
    before = wire.left()
    session.execute(COUNT.format(3))
    assert before - wire.left() == Fraction("0.5")
    session.execute(COUNT.format(4) + " /* noisegate: epsilon=0.125 */")
    assert before - wire.left() == Fraction("0.625")
    session.execute("RESET noisegate.epsilon")
    with pytest.raises(psycopg.Error) as refused:
        session.execute(COUNT.format(5))
    assert refused.value.sqlstate == "55000"


def test_within_buys_an_accuracy(wire, session):
    session.execute("SET noisegate.within = 100")
    session.execute("SET noisegate.confidence = 0.9")
    session.execute("SET noisegate.margins = on")
    rows = session.execute("SELECT COUNT(*) AS n FROM visits WHERE cost > 6").fetchall()
    assert 50 < rows[0][1] <= 100


def test_an_aggregate_without_a_price_is_refused_with_its_plan(wire, session):
    before = wire.left()
    with pytest.raises(psycopg.Error) as refused:
        session.execute(COUNT.format(7))
    assert refused.value.sqlstate == "55000"
    assert "price ε = 0.1; n ± " in refused.value.diag.message_detail
    assert "noisegate.ask" in refused.value.diag.message_hint
    assert wire.left() == before


def test_what_was_released_needs_no_price_and_costs_nobody_anything(wire, session):
    session.execute(COUNT.format(61) + " /* noisegate: epsilon=0.1 */")
    known = session.execute(COUNT.format(61)).fetchall()
    before = wire.left("ana"), wire.left("ben")
    with psycopg.connect(wire.dsn("ben"), autocommit=True) as other:
        for prepare in (False, True):
            assert other.execute(COUNT.format(61), prepare=prepare).fetchall() == known
        with pytest.raises(psycopg.Error) as refused:  # a price that was not paid yet
            other.execute(COUNT.format(62))
    assert refused.value.sqlstate == "55000"
    assert (wire.left("ana"), wire.left("ben")) == before


def test_what_no_price_would_answer_is_refused_for_what_it_is(session):
    with pytest.raises(psycopg.errors.UndefinedColumn):
        session.execute("SELECT ward, AVG(nothing) FROM visits GROUP BY ward")


def test_no_price_outlives_the_transaction_that_set_it(wire):
    with psycopg.connect(wire.dsn()) as session:
        session.execute("SET noisegate.epsilon = 0.5")
        session.execute("SET TimeZone = 'Europe/Bern'")
        session.rollback()  # as pools do with what is given back
        assert session.execute("SHOW noisegate.epsilon").fetchone() == ("",)
        assert session.info.parameter_status("TimeZone") == "UTC"
        session.execute("SET LOCAL noisegate.epsilon = 0.5")
        session.execute("SET noisegate.confidence = 0.9")
        assert session.execute("SHOW noisegate.epsilon").fetchone() == ("0.5",)
        session.commit()
        assert session.execute("SHOW noisegate.epsilon").fetchone() == ("",)
        assert session.execute("SHOW noisegate.confidence").fetchone() == ("0.9",)
        session.commit()
        session.autocommit = True
        session.execute("SET LOCAL noisegate.epsilon = 0.5")  # of no transaction
        before = wire.left()
        with pytest.raises(psycopg.Error) as refused:
            session.execute(COUNT.format(63))
        assert refused.value.sqlstate == "55000"
        assert wire.left() == before


def test_a_failed_transaction_is_not_committed(wire):
    with psycopg.connect(wire.dsn(), autocommit=True) as session:
        session.execute("BEGIN")
        session.execute("SET noisegate.epsilon = 0.5")
        with pytest.raises(psycopg.Error):
            session.execute("SELECT * FROM nowhere")
        assert session.execute("COMMIT").statusmessage == "ROLLBACK"
        assert session.execute("SHOW noisegate.epsilon").fetchone() == ("",)


def test_ask_on_pays_what_the_policy_says(wire, session):
    session.execute("SET noisegate.ask = on")
    before = wire.left()
    assert len(session.execute(COUNT.format(8)).fetchall()) == 4
    assert before - wire.left() == Fraction("0.1")


def test_practice_is_free_and_marked(wire, session):
    said, before = notices(session), wire.left()
    session.execute("SET noisegate.practice = on")
    assert len(session.execute(COUNT.format(9)).fetchall()) == 4
    assert wire.left() == before
    assert "PRACTICE" in said[0]


def test_margins_are_columns_where_asked_for(wire, session):
    session.execute("SET noisegate.margins = on")
    session.execute("SET noisegate.epsilon = 1")
    for prepare in (False, True):
        shown = session.execute(COUNT.format(10), prepare=prepare)
        assert [each.name for each in shown.description] == ["ward", "n", "n_margin"]
        assert all(row[2] > 0 for row in shown.fetchall())
    expected = wire.gate().sql(COUNT.format(10), epsilon=1).margins()["n"]
    assert [row[2] for row in session.execute(COUNT.format(10)).fetchall()] == list(expected)


def test_columns_that_were_told_stay_whatever_is_set_later(wire, session):
    sql = COUNT.format(12) + " /* noisegate: epsilon=0.5 */"
    with Raw(wire) as client:
        client.send(message(b"P", b"s\0" + sql.encode() + b"\0\0\0"), message(b"D", b"Ss\0"), SYNC)
        client.until()
        client.query("SET noisegate.margins = on")
        client.send(message(b"B", b"\0s\0" + bytes(6)), message(b"E", bytes(5)), SYNC)
        found = client.until()
        assert errors(found) == []
        assert {len(row) for row in rows(found)} == {2}
        assert {len(row) for row in rows(client.query(sql))} == {3}


def test_describing_is_free_and_right(wire):
    sql = b"SELECT ward, COUNT(*) AS n, AVG(cost) AS m FROM visits WHERE cost > $1 GROUP BY ward /* noisegate: epsilon=0.5 */"
    with Raw(wire) as client:
        before = wire.left()
        client.send(message(b"P", b"s\0" + sql + b"\0\0\0"), message(b"D", b"Ss\0"), SYNC)
        described = dict(client.until())
        assert described[b"t"] == struct.pack("!HI", 1, 701)
        assert [described[b"T"].count(name) for name in (b"ward\0", b"n\0", b"m\0")] == [1, 1, 1]
        client.send(message(b"B", b"p\0s\0\0\0\0\1" + struct.pack("!i", 2) + b"11" + b"\0\0"))
        client.send(message(b"D", b"Pp\0"), message(b"H"))
        again = dict(client.until(b"T"))
        assert again[b"T"] == described[b"T"]
        assert wire.left() == before
        client.send(message(b"E", b"p\0" + struct.pack("!I", 2)), message(b"H"))
        found = client.until(b"s")
        assert len(rows(found)) == 2
        assert before - wire.left() == Fraction("0.5")
        client.send(message(b"E", b"p\0" + struct.pack("!I", 0)), SYNC)
        found = client.until()
        assert len(rows(found)) == 2
        assert (b"C", b"SELECT 2\0") in found
        assert before - wire.left() == Fraction("0.5")


def test_preparing_alone_never_charges(wire, session):
    before = wire.left()
    with Raw(wire) as client:
        for place in range(3):
            sql = (COUNT.format(20 + place) + " /* noisegate: epsilon=1 */").encode()
            client.send(message(b"P", b"\0" + sql + b"\0\0\0"), message(b"B", bytes(8)))
            client.send(message(b"D", b"P\0"), SYNC)
            assert b"T" in dict(client.until())
    assert wire.left() == before


def test_parameters_are_values_and_never_sql(wire, session):
    session.execute("SET noisegate.epsilon = 1")
    sql = "SELECT COUNT(*) AS n FROM visits WHERE ward = %s"
    hostile = "north' OR 1=1 --"
    known = session.execute(sql, ["north"]).fetchone()
    for text in (hostile, "'", "''", "\\", "\\'", "$1", "/* noisegate: epsilon=900 */", "ε\u2028"):
        before = wire.left()
        assert session.execute(sql, [text]).fetchone() != known
        assert before - wire.left() <= 1
    asked = [each["sql"] for each in wire.view().history(9)]
    assert "SELECT COUNT(*) AS n FROM visits WHERE ward = 'north'' OR 1=1 --'" in asked


def test_parameters_of_every_type(wire, session):
    session.execute("SET noisegate.epsilon = 0.01")
    for binary in (False, True):
        sql = "SELECT COUNT(*) AS n FROM visits WHERE day >= %s AND cost > %s AND patient_id <> %s AND ward IN (%s, %s)"
        cursor = session.cursor(binary=binary)
        cursor.execute(sql, ["2024-05-01", 3.5, 7, "north", None])
        assert isinstance(cursor.fetchone()[0], int)
        cursor.execute("SELECT AVG(cost) AS m FROM visits WHERE cost < %s", [Decimal("700.25")])
        assert isinstance(cursor.fetchone()[0], float)


def test_what_only_postgres_says_so_is_the_same_question(wire, session):
    session.execute("SET noisegate.epsilon = 0.25")
    asked = "SELECT COUNT(*) AS n FROM visits WHERE cost < 640 AND "
    wards = session.execute(asked + "ward IN ('north', 'south')").fetchall()
    others = session.execute(asked + "ward NOT IN ('north', 'south')").fetchall()
    between = asked + "CAST(day AS TIMESTAMP) BETWEEN {} AND {}"
    moments = ("TIMESTAMP '2024-03-01 00:00:00'", "TIMESTAMP '2024-04-01 12:00:00'")
    spring = session.execute(between.format(*moments)).fetchall()
    days = session.execute(asked + "day = DATE '2024-03-01'").fetchall()
    before = wire.left()
    for more, values in (
        ("ward = ANY(%s)", [["north", "south"]]),
        ("ward = ANY('{north,south}')", []),
        ("ward = ANY(ARRAY['north', 'south']::text[])", []),
    ):
        for binary in (False, True):
            assert session.execute(asked + more, values, binary=binary).fetchall() == wards
    shown = session.execute(asked + "ward <> ALL(%s)", [["north", "south"]]).fetchall()
    assert shown == others
    form = "'YYYY-MM-DD HH24:MI:SS.US'"
    for low, high in (
        (f"TO_TIMESTAMP('2024-03-01 00:00:00.000000', {form})",
         f"TO_TIMESTAMP('2024-04-01 12:00:00.000000', {form})"),
        ("'2024-03-01T00:00:00Z'", "'2024-04-01T12:00:00+00:00'"),
        ("TIMESTAMPTZ '2024-03-01'", "'2024-04-01 14:00:00+02'::timestamp with time zone"),
    ):  # fmt: skip
        assert session.execute(between.format(low, high)).fetchall() == spring
    assert session.execute(asked + "day = TO_DATE('01.03.2024', 'DD.MM.YYYY')").fetchall() == days
    assert wire.left() == before


def test_the_session_has_caps_of_its_own(wire, session):
    session.execute("SET noisegate.question_max = 0.5")
    session.execute("SET noisegate.session_max = 0.9")
    before = wire.left()
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute(COUNT.format(30) + " /* noisegate: epsilon=0.6 */")
    session.execute(COUNT.format(30) + " /* noisegate: epsilon=0.5 */")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute(COUNT.format(31) + " /* noisegate: epsilon=0.5 */")
    session.execute(COUNT.format(30) + " /* noisegate: epsilon=0.5 */")  # known, so free
    assert before - wire.left() == Fraction("0.5")
    assert session.execute("SHOW noisegate.spent").fetchone() == ("0.5",)


def test_a_token_has_caps_too(wire):
    token = wire.service.people.new_token("ana", epsilon_question="0.2")
    with psycopg.connect(wire.dsn(password=token), autocommit=True) as session:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute(COUNT.format(32) + " /* noisegate: epsilon=0.3 */")
        session.execute(COUNT.format(32) + " /* noisegate: epsilon=0.2 */")


def test_over_budget_is_refused_and_costs_nothing(wire):
    with psycopg.connect(wire.dsn("ben"), autocommit=True) as session:
        before = wire.left("ben")
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
            session.execute(COUNT.format(33) + " /* noisegate: epsilon=1.5 */")
        assert wire.left("ben") == before
        left = session.execute("SHOW noisegate.remaining").fetchone()[0]
        assert float(left) == float(before)


def test_two_analysts_pay_from_their_own_accounts(wire, session):
    sql = COUNT.format(34) + " /* noisegate: epsilon=0.125 */"
    ana, ben = wire.left("ana"), wire.left("ben")
    first = session.execute(sql).fetchall()
    with psycopg.connect(wire.dsn("ben"), autocommit=True) as other:
        assert other.execute(sql).fetchall() == first  # released before, by whomever
    assert ana - wire.left("ana") == Fraction("0.125")
    assert ben - wire.left("ben") in (0, Fraction("0.125"))


def test_a_steward_looks_and_has_no_account_to_ask_from(wire):
    with psycopg.connect(wire.dsn("sam"), autocommit=True) as session:
        assert session.execute("SELECT COUNT(*) FROM information_schema.tables").fetchone() == (4,)
        assert len(session.execute("SELECT * FROM visits LIMIT 3").fetchall()) == 3
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute(COUNT.format(35) + " /* noisegate: epsilon=0.1 */")


def test_explain_is_the_plan_and_free(wire, session):
    before = wire.left()
    shown = dict(session.execute("EXPLAIN " + COUNT.format(36)).fetchall())
    assert shown["price"] == "ε = 0.1"
    ((plan,),) = session.execute("EXPLAIN (FORMAT JSON) " + COUNT.format(36)).fetchall()
    assert plan[0]["price"] == 0.1
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        session.execute("EXPLAIN ANALYZE " + COUNT.format(36))
    assert wire.left() == before


def test_a_failed_transaction_waits_for_its_end(wire):
    with psycopg.connect(wire.dsn()) as session:
        with pytest.raises(psycopg.errors.UndefinedTable):
            session.execute("SELECT * FROM nowhere")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            session.execute("SELECT 1")
        session.rollback()
        assert session.execute("SELECT 1").fetchone() == (1,)
        with session.transaction(), session.transaction():
            assert session.execute("SELECT 2").fetchone() == (2,)


def test_several_statements_of_one_message_end_at_the_first_error(wire):
    with Raw(wire) as client:
        before = wire.left()
        asked = COUNT.format(37) + " /* noisegate: epsilon=0.5 */"
        found = client.query(f"SELECT 1; SELECT * FROM nowhere; {asked}")
        assert errors(found) == ["42P01"]
        assert rows(found) == [("1",)]
        assert wire.left() == before


def test_a_cursor_is_paid_for_when_it_is_first_read(wire):
    with psycopg.connect(wire.dsn()) as session:
        before = wire.left()
        session.execute(f"DECLARE c CURSOR FOR {COUNT.format(38)} /* noisegate: epsilon=0.5 */")
        assert wire.left() == before
        assert len(session.execute("FETCH 3 FROM c").fetchall()) == 3
        assert len(session.execute("FETCH ALL FROM c").fetchall()) == 1
        assert before - wire.left() == Fraction("0.5")
        session.execute("CLOSE c")
        with pytest.raises(psycopg.errors.InvalidCursorName):
            session.execute("FETCH 1 FROM c")


def test_settings_come_with_the_connection(wire):
    options = "-c noisegate.epsilon=0.25 -c noisegate.margins=on"
    with psycopg.connect(wire.dsn(options=options), autocommit=True) as session:
        before = wire.left()
        shown = session.execute(COUNT.format(39))
        assert [each.name for each in shown.description] == ["ward", "n", "n_margin"]
        assert before - wire.left() == Fraction("0.25")
        session.execute("SET noisegate.margins = off")
        session.execute("DISCARD ALL")  # back to what came with the connection, as in Postgres
        assert session.execute("SHOW noisegate.margins").fetchone() == ("on",)


def test_a_question_that_has_to_be_approved_says_so():
    """The client is told at once, and nothing is spent."""
    made = Wire(settings=Settings(quantum=0, approve_above=Fraction(1, 2)))
    try:
        with psycopg.connect(made.dsn(), autocommit=True) as session:
            before = made.left()
            with pytest.raises(psycopg.Error) as refused:
                session.execute(COUNT.format(1) + " /* noisegate: epsilon=0.75 */")
            assert refused.value.sqlstate == "55000"
            assert made.left() == before
            (run,) = made.service.waiting()
            made.service.approve(made.service.people.caller_of("sam"), run.id)
            run.wait(10)
            assert len(session.execute(COUNT.format(1) + " /* noisegate: epsilon=0.75 */").fetchall()) == 4  # fmt: skip
            assert before - made.left() == Fraction("0.75")
            made.service.pause(made.service.people.caller_of("sam"), "clinic")
            with pytest.raises(psycopg.errors.CannotConnectNow):
                session.execute(COUNT.format(2) + " /* noisegate: epsilon=0.1 */")
            assert session.execute("SELECT * FROM visits LIMIT 1").fetchone() is not None
    finally:
        made.stop()


def test_zcdp_accounts_are_asked_in_the_same_way(tmp_path):
    rows_ = "ward,age,person\n" + "".join(f"{'ns'[n % 2]},{n % 90},{n % 40}\n" for n in range(400))
    (tmp_path / "stays.csv").write_text(rows_)
    policy = tmp_path / "stays.toml"
    policy.write_text(
        'name = "stays"\nsource = "."\n'
        '[budget]\nepsilon = 3\ndelta = 1e-6\naccountant = "zcdp"\n'
        "[questions]\ndefault_epsilon = 0.5\n"
        '[tables.stays]\nunit = "person"\nrows_per_unit = 12\n'
        '[tables.stays.columns]\nward = { in = ["n", "s"] }\n'
        'age = { type = "integer", between = [0, 100] }\nperson = { type = "integer" }\n'
    )
    made = Wire(policy)
    try:
        with psycopg.connect(made.dsn(dbname="stays"), autocommit=True) as session:
            session.execute("SET noisegate.ask = on; SET noisegate.margins = on")
            found = session.execute(
                "SELECT ward, COUNT(*) AS n FROM stays GROUP BY ward"
            ).fetchall()
            assert all(abs(n - 200) <= 10 * margin for _, n, margin in found)
            assert made.gate("ana", "stays").spent.epsilon > 0
    finally:
        made.stop()


def test_what_is_logged_names_the_face_and_the_price(wire, session):
    session.execute(COUNT.format(40) + " /* noisegate: epsilon=0.5 */")
    line = wire.service.log.lines(person="ana", limit=1)[0]
    assert (line.face, line.action, line.detail["price"]) == ("wire", "ask", "1/2")
    assert wire.service.log.broken() is None


def test_notices_have_their_fields(wire):
    with Raw(wire) as client:
        found = client.query("SELECT * FROM visits LIMIT 1")
        (note,) = [fields(body) for kind, body in found if kind == b"N"]
        assert note["S"] == "NOTICE"
        assert note["C"] == "00000"
