"""Requests drawn from the served OpenAPI document, good and bad: no 5xx, and every answer is as the document says.

KIPP_SCHEMATHESIS_EXAMPLES: how many of each operation (default: few, the same in every run).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from examples import ROOT
from kipp_process import OK, Kipp
from served import Served, serving

pytest.importorskip("schemathesis", reason="scripts/setup.sh test installs it")

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks

EXAMPLES = int(os.environ.get("KIPP_SCHEMATHESIS_EXAMPLES", "20"))
MOST_TOKENS = 4
MOST_CHOICES = 3
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]


@pytest.fixture(scope="module")
def served(demo: Kipp) -> Iterator[Served]:
    with serving(demo, "--context", "256", "--max-waiting", "2000") as server:
        yield server
        assert server.get("/health").status == 200
        assert server.end()[0] == OK


@pytest.fixture(scope="module")
def document(served: Served) -> Any:
    return schemathesis.openapi.from_url(f"http://{served.host}:{served.port}/openapi.json")


def make_short(body: Any) -> None:
    """What an answer costs is no matter of its form: fewer tokens and choices, where these are good values."""
    if not isinstance(body, dict):
        return
    for field, most in (("max_tokens", MOST_TOKENS), ("max_completion_tokens", MOST_TOKENS), ("n", MOST_CHOICES)):
        value = body.get(field)
        if isinstance(value, int) and not isinstance(value, bool) and value > most:
            body[field] = most
    if "messages" in body and "max_tokens" not in body and "max_completion_tokens" not in body:
        body["max_tokens"] = MOST_TOKENS


DOCUMENT = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))
OPERATIONS = [(path, method) for path, operations in DOCUMENT["paths"].items() for method in operations]
GOOD, BAD = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
CASES = [(*operation, GOOD) for operation in OPERATIONS]
CASES += [(path, method, BAD) for path, method in OPERATIONS if method == "post"]  # the others have no body to be wrong


@pytest.mark.parametrize(("path", "method", "mode"), CASES)
def test_answers_are_as_the_document_says(document: Any, path: str, method: str, mode: Any) -> None:
    cases = document[path][method].as_strategy(generation_mode=mode)

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def ask(case: schemathesis.Case) -> None:
        if path in {"/v1/completions", "/v1/chat/completions"}:
            make_short(case.body)
        case.call_and_validate(checks=CHECKS, timeout=60)

    ask()
