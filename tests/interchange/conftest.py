"""Fixtures of the comparison with llama.cpp and the gguf package; `make interchange` sets the variables."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from exported_models import DEMO, ROOT, TWIN, Model, exported, twin_artifact

from tools.safetensors_reader import SafetensorsFile
from tools.weight_schemes import SCHEMES

QUANTISED = [scheme for scheme in SCHEMES if scheme != "bf16"]
VECTORS = ROOT / "tests" / "vectors" / "kipp-demo"


def required_file(variable: str) -> Path:
    value = os.environ.get(variable, "")
    if not Path(value).is_file():
        pytest.fail(f"{variable}={value!r}: expected a file; `make interchange` sets it")
    return Path(value).resolve()


@pytest.fixture(scope="session")
def kipp_binary() -> Path:
    return required_file("KIPP_BINARY")


@pytest.fixture(scope="session")
def logits_binary() -> Path:
    return required_file("KIPP_LOGITS_BINARY")


@pytest.fixture(scope="session")
def demo() -> Model:
    return exported(DEMO, required_file("KIPP_DEMO_ARTIFACT"))


@pytest.fixture(scope="session", params=[DEMO, *QUANTISED, TWIN])
def model(request: pytest.FixtureRequest) -> Model:
    """The quantised demos lie beside the BF16 one (`make demo-schemes`)."""
    if request.param == TWIN:
        return exported(TWIN, twin_artifact())
    if request.param == DEMO:
        return request.getfixturevalue("demo")
    demo = required_file("KIPP_DEMO_ARTIFACT")
    return exported(DEMO, demo.with_name(demo.name.replace("bf16", request.param)), request.param)


@pytest.fixture(scope="session")
def prompts() -> dict[str, list[int]]:
    """The ids of the reference vectors: 1 to 210 tokens, several languages, code, a chat with tools."""
    found = {}
    for path in sorted(VECTORS.glob("*.safetensors")):
        with SafetensorsFile(path) as file:
            entry = file.tensors["ids"]
            found[path.stem] = np.frombuffer(file.read(entry, 0, entry.num_bytes), "<i4").tolist()
    assert len(found) == 7
    return found
