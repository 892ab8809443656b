"""The pages in a real browser: by keyboard, without scripts, on a phone, on paper."""

import re
import shutil
import socket
import threading
import time
from fractions import Fraction

import pytest
import uvicorn
from browser import BY_WARD, HOME, clinic_service
from starlette.applications import Starlette

from noisegate.orders import order_from
from noisegate.server.console import console_routes

PAGES = {
    "ana": ("ask", "describe", "order", "order?kind=map", "releases", "history"),
    "sam": ("budget", "policy", "audit", "audit/report", "history", "lab"),
}


@pytest.fixture(scope="module")
def chromium():
    """One browser for all tests here; nothing is fetched from anywhere.

    Its event loop runs in this thread: were it kept, no later test could run one of its own.
    """
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is on the path")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = clinic_service(tmp_path_factory.mktemp("browser"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def address(service):
    """The console at a port of this machine."""
    app = Starlette(routes=console_routes(service))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none", lifespan="off"))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def visit(chromium, address, service):
    """Somebody's own window, signed in. What a page complains about fails the test."""
    windows, complaints = [], []

    def opened(name, **options):
        window = chromium.new_context(**options)
        windows.append(window)
        page = window.new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text))
        page.on(
            "request",
            lambda sent: sent.url.startswith((address, "data:")) or complaints.append(sent.url),
        )
        page.goto(address)
        page.get_by_label("Token").fill(service.people.new_token(name))
        page.keyboard.press("Enter")
        page.wait_for_selector("nav")
        return page

    yield opened
    for window in windows:
        window.close()
    assert complaints == []


def test_a_question_by_keyboard_from_the_first_letter_to_the_file(visit, service):
    gate = service.view(service.people.caller_of("ana"), "clinic").gate
    before, page = gate.spent.epsilon, visit("ana")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.get_by_label("Question in SQL").focus()
    page.keyboard.type("SELECT wa")
    page.get_by_role("option", name="ward").wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")  # takes the name
    page.keyboard.type(", COUNT(*) AS n FROM visits WHERE cost > 99 GROUP BY ward")
    page.keyboard.press("Escape")
    price = page.locator("#plan dd").first
    page.wait_for_function(
        "() => document.querySelector('#plan dd')?.textContent.includes('ε = 0.1')"
    )
    assert price.inner_text() == "ε = 0.1"
    assert page.get_by_role("status").inner_text().startswith("Price ε = 0.1; n ±")
    assert "this question ε = 0.1" in page.locator("#plan figcaption").inner_text()
    assert float(page.get_by_label("largest error", exact=True).input_value()) > 0
    page.get_by_label("ε to spend", exact=True).fill("0.5")
    page.wait_for_function(
        "() => document.querySelector('#plan dd').textContent.includes('ε = 0.5')"
    )
    assert gate.spent.epsilon == before
    page.get_by_role("button", name="Ask", exact=True).press("Enter")
    page.wait_for_selector("#result table")
    assert page.locator("#result tbody tr").count() == 4
    assert page.locator("#result svg rect").count() == 4
    assert gate.spent.epsilon == before + Fraction(1, 2)
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert download.value.path().read_text().startswith("ward,n,n_margin")


def test_a_release_is_ordered_by_its_form_with_a_row_for_one_more_column(visit):
    page = visit("ana")
    page.get_by_label("Question in SQL").focus()
    page.keyboard.type("SELECT ME")
    page.get_by_role("option", name="MEDIAN( aggregate").wait_for()  # functions are completed, too
    page.get_by_label("Question in SQL").fill("")  # before it is priced, which would be refused
    page.get_by_role("link", name="Order", exact=True).click()
    page.get_by_role("link", name="histogram", exact=True).click()
    page.get_by_role("link", name="visits", exact=True).click()
    assert not page.get_by_label("Column 2", exact=True).is_visible()
    page.get_by_label("Column 1", exact=True).select_option("ward")
    page.get_by_label("Column 2", exact=True).select_option("cost")
    page.get_by_label("Column 2 grouped by").fill("100")
    page.get_by_label("Spend ε").fill("0.25")
    page.wait_for_function(
        "() => document.querySelector('#plan dd')?.textContent.includes('ε = 0.25')"
    )
    page.get_by_role("button", name="Practise").click()
    page.wait_for_selector("#result .map")
    assert page.locator("#result rect").count() == 40  # 4 wards; 9 bins and missing values
    assert page.locator("#result .across li").all_inner_texts()[0] == "0 to 100"


def test_accuracy_moves_the_price_and_a_refusal_shows_its_fix(visit):
    page = visit("ana")
    page.get_by_label("Question in SQL").fill(BY_WARD)
    page.get_by_label("largest error", exact=True).fill("400")
    page.wait_for_selector("#plan dd")
    page.wait_for_function("() => document.querySelector('[name=epsilon]').value != '0.1'")
    assert 0.1 < float(page.get_by_label("ε to spend", exact=True).input_value()) < 1
    page.get_by_label("Find a table or column").fill("drug")
    assert page.locator(".shelf summary:visible").all_inner_texts()[0].startswith("prescriptions")


def test_without_scripts_the_same_question_is_priced_practised_and_asked(visit):
    page = visit("ana", java_script_enabled=False)
    shows = {"Price only": "#plan dd", "Practise": "#result .warn", "Ask": "#result td"}
    for button, shown in shows.items():
        page.get_by_label("Question in SQL").fill(BY_WARD)
        page.get_by_label("ε to spend", exact=True).fill("0.5")
        page.get_by_role("button", name=button, exact=True).click()
        page.locator(shown).first.wait_for()
    assert page.locator("#result svg").count() == 1


def test_a_steward_walks_through_levers_sliders_and_the_ledger(visit):
    page = visit("sam")
    page.get_by_text("New token").click()
    page.get_by_label("Label").fill("laptop")
    page.get_by_role("button", name="Make a token").click()
    assert re.fullmatch(r"ng_\w+_[\w-]+", page.locator(".secret").inner_text())
    page.get_by_text("Change the budget").click()
    page.get_by_label("ε of all answers together").fill("5")
    page.get_by_label("Reason; the ledger keeps it").fill("agreed")
    page.get_by_label("Reason; the ledger keeps it").press("Enter")
    page.get_by_role("link", name="No, leave it").click()
    page.get_by_role("link", name="Policy").click()
    before = page.locator("#found .chosen").inner_text()
    page.get_by_label("ε, slider").press("ArrowRight")
    page.wait_for_function(
        "before => document.querySelector('#found .chosen').innerText != before", arg=before
    )
    page.get_by_role("link", name="Audit").click()
    page.get_by_role("button", name="Verify").click()
    assert page.get_by_text("verified.").count() == 2


@pytest.mark.parametrize("name", PAGES)
def test_every_page_fits_a_phone_in_the_dark_and_can_be_told_without_colour(visit, service, name):
    view = service.view(service.people.caller_of("ana"), "clinic")
    run = view.ask(order_from({"kind": "sql", "sql": BY_WARD, "epsilon": "0.5"})).id
    terms = {"table": "patients", "columns": {"birth_year": 10}, "epsilon": "0.2"}
    view.ask(order_from({"kind": "release", "name": "histogram", **terms}))
    small = {"width": 360, "height": 740}
    page = visit(name, viewport=small, color_scheme="dark")
    for each in (*PAGES[name], f"runs/{run}", f"runs/{run}/card"):
        page.goto(page.url.partition(HOME)[0] + f"{HOME}/{each}")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= small["width"], (each, wide)
        assert page.locator("svg:not([aria-label])").count() == 0
        assert page.evaluate(CONTRAST) == [], each


CONTRAST = """() => {  // texts whose contrast with what is behind them is below 4.5 to 1
  const light = (c) => { const [r, g, b] = c.map((v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const parts = (c) => c.match(/[\\d.]+/g).map(Number);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c.slice(0, 3); } return [255, 255, 255]; };
  const low = [];
  for (const e of document.querySelectorAll("main *, header *")) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility()) continue;
    const style = getComputedStyle(e);
    const ink = parts(e instanceof SVGElement ? style.fill : style.color).slice(0, 3);
    const [a, b] = [light(ink), light(behind(e))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) low.push(`${e.tagName} ${e.textContent.trim().slice(0, 30)}`);
  }
  return low;
}"""


def test_the_report_is_one_sheet_of_paper(visit):
    page = visit("sam")
    page.goto(page.url.partition(HOME)[0] + f"{HOME}/audit/report?data=clinic")
    printed = page.pdf(format="A4", prefer_css_page_size=False)
    assert len(re.findall(rb"/Type\s*/Page\b(?!s)", printed)) == 1
    assert page.evaluate(CONTRAST) == []
