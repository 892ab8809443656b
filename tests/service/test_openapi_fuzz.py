"""Whatever the description allows, and what it does not: the service never fails by itself."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from noisegate.server.http.table import CALLS

BOUNDED = settings(
    max_examples=5, deadline=None, phases=[Phase.generate], derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.fixture(scope="module")
def api(served):
    import schemathesis  # which takes a second

    return schemathesis.openapi.from_url(f"{served.url}/openapi.json")


@pytest.mark.long
@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_no_request_makes_the_service_fail(api, served, call, mode):
    from schemathesis.checks import not_a_server_error
    from schemathesis.generation import GenerationMode
    from schemathesis.specs.openapi import checks

    every = [
        not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
        checks.response_schema_conformance,
    ]  # fmt: skip
    operation = api[call.path][call.method]
    seen = []

    @BOUNDED
    @given(operation.as_strategy(generation_mode=GenerationMode(mode)))
    def check(case):
        if "dataset" in case.path_parameters and len(seen) % 2:
            case.path_parameters["dataset"] = "clinic"
        headers = {"Authorization": f"Bearer {served.tokens['ana']}", "Prefer": "wait=5"}
        case.call_and_validate(headers=headers, checks=every)
        seen.append(case)

    has_input = call.query or call.takes_order or "{" in call.path
    if mode == "positive" or has_input:
        check()
        assert seen
