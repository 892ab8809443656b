"""Shared by all folders: nothing may be skipped unnoticed where everything must run.

How long an example takes is no result: on a busy machine it would decide over good and bad.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if os.environ.get("NOISEGATE_NO_SKIPS") and skipped:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter.write_line(f"{len(skipped)} tests were skipped where all must run", red=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What long runs have counted (``record_property("counts", …)``), at the end of all."""
    ended = (terminalreporter.stats.get(each, []) for each in ("passed", "failed"))
    for report in (report for reports in ended for report in reports):
        for name, text in report.user_properties:
            if name == "counts":
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {text}")
