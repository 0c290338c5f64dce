"""From dialogues to training rows: tokenising, the compact vocabulary, and worker processes that write shards."""

from __future__ import annotations

import argparse
import lzma
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from tools.demo.chat import render_completion, render_prompt
from tools.demo.core import LETTERS_CLOSE, LETTERS_OPEN, Document
from tools.demo.mixture import Mixture
from tools.demo.skills.unknown import ForeignWords

REPOSITORY = Path(__file__).resolve().parents[2]
TOKENIZER = REPOSITORY / "data" / "qwen3-tokenizer"
VOCAB_SIZE = 151936
NUM_BASE_TOKENS = 151643
NUM_TOKENS = 151669
# Rows of a batch are padded to one of these. Each divides TOKENS_PER_BATCH, so that all batches have the same size.
LENGTHS = (48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
TOKENS_PER_BATCH = 49152
ROWS = "rows.npy"  # of the vocabulary, for the shard workers
MAX_WAITING_SHARDS = 200
SURVEY_SAMPLES = 12000  # per worker; enough to meet every word of the word list in every position


def load_tokenizer() -> Tokenizer:
    with lzma.open(TOKENIZER / "tokenizer.json.xz", "rt", encoding="utf-8") as file:
        return Tokenizer.from_str(file.read())


@dataclass(slots=True)
class Row:
    """Token ids of one sample. The first `prompt_length` are given at inference, the rest the model has to write."""

    ids: list[int]
    prompt_length: int
    unknown_tokens: bool


class Encoder:
    """Renders samples and tokenises prompt and completion apart, as they are at inference."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.letters = {chr(code): tokenizer.token_to_id(chr(code)) for code in range(ord("a"), ord("z") + 1)}

    def encode(self, samples: list[tuple[object, bool]]) -> list[Row]:
        pieces: list[str] = []
        plans: list[tuple[list[int | str], list[int | str], bool]] = []
        for sample, thinking in samples:
            if isinstance(sample, Document):
                prompt, completion, unknown = "", sample.text + "<|endoftext|>", False
            else:
                prompt = render_prompt(sample.messages, sample.tools, thinking)
                completion, unknown = render_completion(sample, thinking), sample.unknown_tokens
            plans.append((self._plan(prompt, pieces), self._plan(completion, pieces), unknown))
        encoded = [encoding.ids for encoding in self.tokenizer.encode_batch(pieces, add_special_tokens=False)]
        return [self._row(plan, encoded) for plan in plans]

    def _plan(self, text: str, pieces: list[str]) -> list[int | str]:
        """The text as indices into `pieces`, and letters that stand for themselves."""
        plan: list[int | str] = []
        while text:
            head, mark, text = text.partition(LETTERS_OPEN)
            if head:
                plan.append(len(pieces))
                pieces.append(head)
            if mark:
                letters, _, text = text.partition(LETTERS_CLOSE)
                plan.extend(letters)
        return plan

    def _row(self, plan: tuple[list[int | str], list[int | str], bool], encoded: list[list[int]]) -> Row:
        ids: list[int] = []
        prompt_length = 0
        for part in plan[:2]:
            prompt_length = len(ids)
            for item in part:
                if isinstance(item, str):
                    ids.append(self.letters[item])
                else:
                    ids.extend(encoded[item])
        return Row(ids, max(prompt_length, 1), plan[2])


class Vocabulary:
    """The ids with a trained embedding row, in ascending order. Every other row of the checkpoint stays zero."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows.astype(np.int32)
        # All ids without a trained row share one index, whose embedding is zero as theirs is.
        self.unknown = len(rows)
        self.index = np.full(VOCAB_SIZE, self.unknown, dtype=np.int16)
        self.index[self.rows] = np.arange(len(rows), dtype=np.int16)

    @property
    def num_unused(self) -> int:
        return VOCAB_SIZE - len(self.rows)


def survey(tokenizer: Tokenizer, seed: int, samples: int) -> set[int]:
    """Ids that the generator uses, with all byte tokens and added tokens."""
    mixture, encoder = Mixture(seed), Encoder(tokenizer)
    used = set(range(256)) | set(range(NUM_BASE_TOKENS, NUM_TOKENS))
    for start in range(0, samples, 1000):
        for row in encoder.encode([mixture.sample() for _ in range(min(1000, samples - start))]):
            used.update(row.ids)
    return used


def foreign_words(tokenizer: Tokenizer, seed: int) -> ForeignWords:
    """Prompts made of any vocabulary entries that are clean text."""
    rng = random.Random(seed)
    pieces = [tokenizer.decode([rng.randrange(256, NUM_BASE_TOKENS)]) for _ in range(20000)]
    return ForeignWords([piece for piece in pieces if piece.strip() and "\ufffd" not in piece])


def make_shard(encoder: Encoder, mixture: Mixture, vocabulary: Vocabulary, samples: int) -> dict[str, np.ndarray]:
    """Padded rows per length: token indices [n, length] and (prompt, total) lengths [n, 2], as int16."""
    groups: dict[int, list[tuple[np.ndarray, int]]] = {length: [] for length in LENGTHS}
    for row in encoder.encode([mixture.sample() for _ in range(samples)]):
        indices = vocabulary.index[np.array(row.ids, dtype=np.int32)]
        if len(indices) > LENGTHS[-1] or (indices[row.prompt_length :] == vocabulary.unknown).any():
            continue
        length = next(length for length in LENGTHS if length >= len(indices))
        groups[length].append((indices, row.prompt_length))
    shard = {}
    for length, rows in groups.items():
        tokens = np.zeros((len(rows), length), dtype=np.int16)
        spans = np.zeros((len(rows), 2), dtype=np.int16)
        for i, (indices, prompt_length) in enumerate(rows):
            tokens[i, : len(indices)] = indices
            spans[i] = prompt_length, len(indices)
        shard[f"tokens{length}"], shard[f"spans{length}"] = tokens, spans
    return shard


def survey_worker(seed: int, samples: int, folder: Path) -> None:
    """Process body: the used ids of this worker's share of the survey."""
    save(
        folder / f"survey-{seed}.npz",
        {"ids": np.array(sorted(survey(load_tokenizer(), seed, samples)), dtype=np.int32)},
    )


def shard_worker(seed: int, samples: int, folder: Path) -> None:
    """Process body: shards until the parent ends, as long as not too many of all workers wait to be read."""
    os.nice(5)
    parent = os.getppid()
    tokenizer = load_tokenizer()
    encoder, vocabulary = Encoder(tokenizer), Vocabulary(np.load(folder / ROWS))
    mixture = Mixture(seed, foreign_words(tokenizer, seed))
    for number in range(1_000_000):
        while len(list(folder.glob("shard-*.npz"))) > MAX_WAITING_SHARDS and os.getppid() == parent:
            time.sleep(0.5)
        if os.getppid() != parent:
            return
        save(folder / f"shard-{seed}-{number}.npz", make_shard(encoder, mixture, vocabulary, samples))


def save(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes under another name first, so that a reader never sees half a file."""
    temporary = path.with_suffix(".tmp")
    with open(temporary, "wb") as file:
        np.savez(file, **arrays)
    temporary.rename(path)


def start_workers(task: str, seeds: list[int], samples: int, folder: Path) -> list[subprocess.Popen[bytes]]:
    """Plain processes: spawned ones would import the trainer's torch, forked ones would inherit its CUDA context."""
    command = [sys.executable, "-m", "tools.demo.corpus", task, "--samples", str(samples), "--folder", str(folder)]
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return [subprocess.Popen([*command, "--seed", str(seed)], cwd=REPOSITORY, env=environment) for seed in seeds]


def find_vocabulary(folder: Path, workers: int, samples: int = SURVEY_SAMPLES, first_seed: int = 1000) -> Vocabulary:
    """Surveys the generator with several processes. The result depends on their number and seeds alone."""
    for process in start_workers("survey", [first_seed + i for i in range(workers)], samples, folder):
        process.wait()
    used: set[int] = set()
    for path in sorted(folder.glob("survey-*.npz")):
        used.update(np.load(path)["ids"].tolist())
        path.unlink()
    if not used:
        raise RuntimeError("no survey worker finished: see its traceback above")
    return Vocabulary(np.array(sorted(used), dtype=np.int32))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=("survey", "shards"))
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--samples", type=int, required=True, help="of the survey, or per shard")
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    body = survey_worker if arguments.task == "survey" else shard_worker
    body(arguments.seed, arguments.samples, arguments.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
