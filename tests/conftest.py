"""Shared by all folders: what is skipped, what is repeated, and where chance comes from.

How long an example takes is no result: on a busy machine it would decide over good and bad.
Examples are the same in every run, so that a change is judged by what it changes; with
``NOISEGATE_EXPLORE=1`` (as `make fuzz` sets it) they are new ones.

Noise cannot be seeded. A test that drew noise and failed is run once more, on other noise: a
defect fails again, chance with the square of its rate. Whatever was repeated is listed at the end.
Attacks, exact laws, stored files and rules of the house do not fail by chance: they run once.
"""

import gc
import os
import signal
from functools import cache, wraps
from pathlib import Path

import pytest
import typer.main
import typer.testing
from _pytest.doctest import DoctestModule
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

from noisegate import files
from noisegate.noise.bits import SystemBits

settings.register_profile(
    "unhurried",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not os.environ.get("NOISEGATE_EXPLORE"),
)
settings.load_profile("unhurried")
gc.set_threshold(100_000, 20, 100)  # a search among all tests and modules finds little
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as where a shell starts a run behind itself
    signal.signal(signal.SIGINT, signal.default_int_handler)
DRAWN = [0]  # how often noise was drawn in this process
# Files of tests that take ten seconds or more each; the last is where Spark may be installed still.
LONGEST = (
    "test_types.py", "test_every_feature.py", "test_everyday.py", "test_fuzz.py",
    "test_sensitivity.py", "test_ledger_crash.py", "test_documents.py", "test_engines_jvm.py",
)  # fmt: skip
CERTAIN = {"security", "exact", "golden", "house"}  # folders where nothing is left to chance


@wraps(SystemBits.words)
def _counted(bits: SystemBits, count: int, width: int, words=SystemBits.words):
    DRAWN[0] += 1
    return words(bits, count, width)


SystemBits.words = _counted
# All commands are made anew for each that runs, a tenth of a second each time: here once.
typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)


@pytest.fixture(scope="session")
def server():
    """One Postgres for all tests that leave it running."""
    from servers import Server

    server = Server()
    yield server
    server.stop()


class WithExamples:
    """Modules without any example are not searched for them: four of five."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path):
        found = yield
        if file_path.suffix != ".py" or ">>>" in file_path.read_text(encoding="utf-8"):
            return found
        return [each for each in found if not isinstance(each, DoctestModule)]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(WithExamples())  # for src, too


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests first: whoever came to one last would keep all others waiting."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # thousands of tests, which stay


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run a test, twice if chance may have failed it. Of many processes, one says little of it.

    Each message between processes costs as much as a small test, and there are five of each.
    """
    among_others = hasattr(item.config, "workerinput")
    if not among_others:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    before = DRAWN[0]
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    failed = next((each for each in reports if each.when == "call" and each.failed), None)
    certain = item.path.parent.name in CERTAIN or item.get_closest_marker("audit")
    if failed and DRAWN[0] > before and not certain:
        item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        why = (line for line in failed.longreprtext.splitlines() if line.startswith("E "))
        reports[-1].user_properties.append(("repeated", next(why, "")))
    for each in reports:
        if not (among_others and _says_nothing(each)):
            item.ihook.pytest_runtest_logreport(report=each)
    if not among_others:
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _says_nothing(report: pytest.TestReport) -> bool:
    """What stood before or after a test went well, and quickly."""
    quick = report.duration < 0.1
    return report.when != "call" and report.passed and quick and not report.user_properties


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    """Forget the files that a test has opened; below those of its fixtures.

    A process never writes over a file that it has opened, by whatever link it is reached, and looks
    at all of them for each one more: after thousands of tests, for longer than the test takes.
    """
    before = len(files._kept)
    try:
        return (yield)
    finally:
        for each in [*files._kept][before:]:
            del files._kept[each]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item):
    yield
    if (folder := getattr(item, "funcargs", {}).get("tmp_path")) is not None:
        inside = f"{folder.resolve()}{os.sep}"
        for each in [each for each in files._kept if each.startswith(inside)]:
            del files._kept[each]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if os.environ.get("NOISEGATE_NO_SKIPS") and skipped:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter.write_line(f"{len(skipped)} tests were skipped where all must run", red=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What long runs have counted (``record_property("counts", …)``), and what was repeated."""
    ended = (terminalreporter.stats.get(each, []) for each in ("passed", "failed", ""))
    for report in (report for reports in ended for report in reports):
        for name, text in report.user_properties:
            if name == "counts":
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {text}")
            if name == "repeated":
                terminalreporter.write_line(f"repeated on other noise: {report.nodeid} ({text})")
