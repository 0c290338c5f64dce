"""lm-evaluation-harness against kipp serve on a small local task: its figures are those of a direct computation.

Not part of `make test`: the harness brings hundreds of megabytes. `make test-clients` installs and runs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kipp_process import OK, Kipp
from served import Served, serving

CHOICES = [
    {"question": "Once upon a time there was a", "choices": ["little girl", "quarterly report"], "answer": 0},
    {"question": "She was very happy and", "choices": ["smiled", "1728"], "answer": 0},
    {"question": "The sky is", "choices": ["blue", "Zürich", "eaten by"], "answer": 0},
    {"question": "He took the 🫨 and", "choices": ["ran away", "ran Möbel"], "answer": 0},
]
CHOICE_TASK = """
task: kipp_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/choices.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
target_delimiter: " "
metric_list: [{{metric: acc}}]
"""
GENERATE_TASK = """
task: kipp_generate
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/choices.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{choices[0]}}}}"
generation_kwargs: {{until: ["."], max_gen_toks: 24, do_sample: false, temperature: 0}}
metric_list: [{{metric: exact_match}}]
"""
LIMIT_SECONDS = 300


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    kipp = Kipp(Path(os.environ["KIPP_BINARY"]).resolve(),
                {"KIPP_MODEL": str(Path(os.environ["KIPP_DEMO_ARTIFACT"]).resolve())})
    with serving(kipp) as server:
        yield server
        assert server.end()[0] == OK


@pytest.fixture(scope="module")
def samples(served: Served, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What the harness writes of each document, by task."""
    folder = tmp_path_factory.mktemp("lm_eval")
    lines = (json.dumps(document, ensure_ascii=False) for document in CHOICES)
    (folder / "choices.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, task in (("choice", CHOICE_TASK), ("generate", GENERATE_TASK)):
        (folder / f"{name}.yaml").write_text(task.format(folder=folder), encoding="utf-8")
    url = f"http://{served.host}:{served.port}/v1/completions"
    arguments = f"model=kipp-demo,base_url={url},num_concurrent=3,max_retries=1"  # it finds /tokenizer_info by itself
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "lm_eval", "--model", "local-completions", "--model_args", arguments,
         "--tasks", "kipp_choice,kipp_generate", "--include_path", folder, "--output_path", folder / "out",
         "--log_samples"],
        env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = {}
    for task in ("kipp_choice", "kipp_generate"):
        (path,) = (folder / "out").rglob(f"samples_{task}_*.jsonl")
        found[task] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert len(found[task]) == len(CHOICES)
    return found


def direct_logprob(served: Served, context: str, continuation: str) -> tuple[float, bool]:
    """Of the continuation's tokens, and whether the best token was taken every time."""
    whole = served.post("/tokenize", {"prompt": context + continuation}).json["tokens"]
    start = len(served.post("/tokenize", {"prompt": context}).json["tokens"])
    logprobs = served.complete(whole, max_tokens=0, echo=True, logprobs=1)["choices"][0]["logprobs"]
    greedy = served.complete(whole[:start], max_tokens=len(whole) - start, logprobs=0)["choices"][0]["logprobs"]
    text = "".join(greedy["tokens"])
    return sum(logprobs["token_logprobs"][start:]), text == continuation


def test_log_likelihoods_are_those_of_a_direct_request(served: Served, samples: dict[str, Any]) -> None:
    for sample in samples["kipp_choice"]:
        document = sample["doc"]
        for choice, ((logprob, is_greedy),) in zip(document["choices"], sample["resps"], strict=True):
            expected, greedy = direct_logprob(served, document["question"], " " + choice)
            assert float(logprob) == pytest.approx(expected, abs=1e-4), (document, choice)
            assert (str(is_greedy) == "True") == greedy
        best = max(range(len(document["choices"])), key=lambda i: float(sample["resps"][i][0][0]))
        assert sample["acc"] == (best == document["answer"])


def test_the_model_prefers_what_makes_sense(samples: dict[str, Any]) -> None:
    assert sum(sample["acc"] for sample in samples["kipp_choice"]) >= 3


def test_generations_are_those_of_a_direct_request(served: Served, samples: dict[str, Any]) -> None:
    for sample in samples["kipp_generate"]:
        prompt = sample["doc"]["question"]
        expected = served.complete(prompt, max_tokens=24, stop=["."])["choices"][0]["text"]
        assert sample["resps"] == [[expected]]
