"""docs/openapi.json is a valid OpenAPI 3.1 document, and says of requests what the parsers do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))
SCHEMAS: dict[str, dict[str, Any]] = DOCUMENT["components"]["schemas"]
MESSAGES = [{"role": "user", "content": "q"}]

# Bodies that tests/server/*.cc hand to the parsers, too.
GOOD = [
    ("CompletionRequest", {"prompt": "Hi"}),
    ("CompletionRequest", {"prompt": ["a", "b"], "logprobs": 0, "echo": True, "best_of": 1, "suffix": None}),
    ("CompletionRequest", {"prompt": [1, 2], "logit_bias": {"42": -100}, "stop": ["x"], "seed": -9, "top_k": -1}),
    ("CompletionRequest", {"prompt": [[1], [2, 3]], "temperature": 0, "stream_options": {"include_usage": True}}),
    ("ChatCompletionRequest", {"messages": MESSAGES, "audio": None, "store": False, "n": None}),
    ("ChatCompletionRequest", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}),
    ("TokenizeRequest", {"prompt": "", "plain": True}),
    ("DetokenizeRequest", {"tokens": []}),
    ("ApplyTemplateRequest", {"messages": MESSAGES}),
]
BAD = [
    ("CompletionRequest", {}),
    ("CompletionRequest", {"prompt": []}),
    ("CompletionRequest", {"prompt": ["a", 1]}),
    ("CompletionRequest", {"prompt": [151669]}),
    ("CompletionRequest", {"prompt": "a", "temprature": 1}),
    ("CompletionRequest", {"prompt": "a", "repetition_penalty": 0}),
    ("CompletionRequest", {"prompt": "a", "logit_bias": {"abc": 5}}),
    ("CompletionRequest", {"prompt": "a", "stop": ""}),
    ("CompletionRequest", {"prompt": "a", "best_of": 2}),
    ("ChatCompletionRequest", {"messages": [{"role": "wizard", "content": "a"}]}),
    ("ChatCompletionRequest", {"messages": MESSAGES, "tool_choice": "required"}),
    ("DetokenizeRequest", {"tokens": [-5]}),
]


def test_a_validator_finds_no_fault() -> None:
    validator = pytest.importorskip("openapi_spec_validator", reason="scripts/setup.sh test installs it")
    validator.validate(DOCUMENT)


CASES = [(*case, True) for case in GOOD] + [(*case, False) for case in BAD]


@pytest.mark.parametrize(("schema", "body", "good"), CASES)
def test_schemas_accept_what_the_parsers_accept(schema: str, body: dict[str, Any], good: bool) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="scripts/setup.sh test installs it")
    assert jsonschema.Draft202012Validator(SCHEMAS[schema]).is_valid(body) is good


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set()
        return own.union(*(references(member) for member in value.values()))
    return set().union(*(references(item) for item in value)) if isinstance(value, list) else set()


def test_every_schema_is_used_and_every_reference_leads_somewhere() -> None:
    named = {f"#/components/schemas/{name}" for name in SCHEMAS}
    assert references(DOCUMENT["paths"]) | {"#/components/schemas/ChatCompletionChunk"} == named


def test_every_operation_has_answers_and_a_name_of_its_own() -> None:
    operations = [operation for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for operation in operations:
        assert set(operation["responses"]) == {"200", "default"}


def test_the_guide_names_every_field_of_a_request() -> None:
    guide = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    for name in (name for name in SCHEMAS if name.endswith("Request")):
        missing = [field for field in SCHEMAS[name]["properties"] if f"`{field}`" not in guide]
        assert not missing, name
