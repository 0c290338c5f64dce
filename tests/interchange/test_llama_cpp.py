"""llama.cpp on the export and Kipp on the artifact give the same logits, as far as llama.cpp's rounding allows.

Both get the same token ids; every position of every prompt is compared over the whole vocabulary. Run with
--capture=no to see the figures; those of docs/interchange.md come from here.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import llama_cpp
import pytest
from engines import KV_TYPES, Logits, Prompts, distance, kipp_logits, llama_logits, write_all_in_f32
from exported_models import Model

# llama.cpp rounds the activations before each product with BF16 weights to BF16, Kipp does not: a relative error of up
# to 2^-9 in each of the factors of some 200 products, one after the other.
NMSE_MAX = 1e-3
# Before products with quantised weights it rounds activations to 8 bits, 32 to a scale: errors of up to 2^-8 of
# the largest of the 32.
QUANTISED_NMSE_MAX = 1e-2
# With F32 weights and an F32 cache llama.cpp rounds nothing but sums: the bound of Phase 1 for such a case.
EXACT_NMSE_MAX = 1e-8


@pytest.fixture(scope="session")
def expected(model: Model, logits_binary: Path, prompts: Prompts) -> Logits:
    return kipp_logits(logits_binary, model.artifact, prompts, model.scratch("logits.f32"))


def nmse_max(model: Model) -> float:
    return NMSE_MAX if model.scheme == "bf16" else QUANTISED_NMSE_MAX


def report(model: Model, what: str, name: str, found: object) -> None:
    print(f"\n{model.name}, {what}, {name}: {found}", end="", flush=True)


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_logits_of_the_export(model: Model, prompts: Prompts, expected: Logits, kv_type: str) -> None:
    found = llama_logits(model.export, prompts, kv_type)
    distances = {name: distance(found[name], expected[name]) for name in prompts}
    for name, result in distances.items():
        report(model, f"KV in {kv_type}", name, result)
    assert all(result.nmse <= nmse_max(model) for result in distances.values())  # NaN is no distance


def test_the_same_computation_when_nothing_is_rounded(model: Model, prompts: Prompts, logits_binary: Path) -> None:
    """Without the rounding of activations, and of K and V, what is left is the order of the sums."""
    widened = model.scratch("all-in-f32.gguf")
    write_all_in_f32(model.artifact, widened)
    found = llama_logits(widened, prompts, "f32")
    widened.unlink()
    expected = kipp_logits(logits_binary, model.artifact, prompts, model.scratch("logits-fp32-kv.f32"),
                           round_kv=False)
    distances = {name: distance(found[name], expected[name]) for name in prompts}
    for name, result in distances.items():
        report(model, "weights and KV in f32", name, result)
    assert all(result.nmse <= EXACT_NMSE_MAX for result in distances.values())


def test_another_prompt_is_noticed(model: Model, prompts: Prompts, expected: Logits) -> None:
    """The bound is no formality: with one id in the middle replaced, the rows from there on are far beyond it."""
    name = "len-033"
    changed = prompts[name].copy()
    changed[16] = changed[15]
    found = llama_logits(model.export, {name: changed}, "f16")[name]
    assert distance(found[:16], expected[name][:16]).nmse <= nmse_max(model)
    assert distance(found[16:], expected[name][16:]).nmse > 10 * nmse_max(model)


def test_the_artifact_itself_needs_the_export(model: Model) -> None:
    """What the export is for: llama.cpp loads an artifact, and ends the process at the first norm."""
    program = ("import sys, engines; from pathlib import Path; "
               "engines.llama_logits(Path(sys.argv[1]), {'p': [9707]}, 'f16')")
    here = Path(__file__).resolve()
    environment = {"PYTHONPATH": f"{here.parents[2]}:{here.parent}", "GGML_NO_BACKTRACE": "1"}
    done = [subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, env=environment,
                           check=False) for path in (model.export, model.artifact)]
    assert done[0].returncode == 0, done[0].stderr
    assert done[1].returncode == -signal.SIGABRT
    assert "unsupported types" in done[1].stderr, done[1].stderr


def test_kipp_refuses_the_export(model: Model, kipp_binary: Path) -> None:
    done = subprocess.run([kipp_binary, "tokenize", "--allow-synthetic", "--model", model.export, "Hi"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "norm.weight" in done.stderr and "BF16" in done.stderr


def test_versions() -> None:
    print(f"\nllama-cpp-python {llama_cpp.__version__}: "
          f"{llama_cpp.llama_print_system_info().decode().strip()}", end="", flush=True)
    pins = (Path(__file__).resolve().parents[2] / "requirements" / "interchange.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)", pins, re.MULTILINE))
    assert llama_cpp.__version__ == pinned["llama-cpp-python"]
    assert version("gguf") == pinned["gguf"]
