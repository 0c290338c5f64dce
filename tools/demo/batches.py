"""Training rows on the device: shards as they arrive, batches of a fixed number of tokens, and the validation set."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

import numpy as np
import torch

from tools.demo.core import Split
from tools.demo.corpus import LENGTHS, Encoder, Vocabulary
from tools.demo.mixture import SKILLS


class Bucket:
    """All rows of one padded length, in one growing tensor."""

    def __init__(self, length: int, device: torch.device) -> None:
        self.tokens = torch.zeros(0, length, dtype=torch.int16, device=device)
        self.spans = torch.zeros(0, 2, dtype=torch.int16, device=device)
        self.filled = 0

    def append(self, tokens: np.ndarray, spans: np.ndarray) -> None:
        needed = self.filled + len(tokens)
        if needed > len(self.tokens):
            extra = max(needed, 2 * len(self.tokens), 4096) - len(self.tokens)
            self.tokens = torch.cat((self.tokens, self.tokens.new_zeros(extra, self.tokens.shape[1])))
            self.spans = torch.cat((self.spans, self.spans.new_zeros(extra, 2)))
        self.tokens[self.filled : needed] = torch.from_numpy(tokens)
        self.spans[self.filled : needed] = torch.from_numpy(spans)
        self.filled = needed


class Pool:
    """Draws batches in proportion to the tokens of each length, rows with replacement from all that has arrived."""

    def __init__(self, device: torch.device, tokens_per_batch: int, seed: int) -> None:
        self.device, self.tokens_per_batch = device, tokens_per_batch
        self.buckets = {length: Bucket(length, device) for length in LENGTHS}
        self.generator = torch.Generator(device).manual_seed(seed)
        self.rng = random.Random(seed)
        self.num_rows = self.num_tokens = 0

    def add(self, shard: dict[str, np.ndarray]) -> None:
        for length, bucket in self.buckets.items():
            tokens, spans = shard[f"tokens{length}"], shard[f"spans{length}"]
            if len(tokens):
                bucket.append(tokens, spans)
                self.num_rows += len(tokens)
                self.num_tokens += int(spans[:, 1].astype(np.int64).sum())

    def load_from(self, folder: Path, at_most: int = 50) -> int:
        """Reads and removes shards that workers have finished."""
        paths = sorted(folder.glob("shard-*.npz"))[:at_most]
        for path in paths:
            try:
                with np.load(path) as shard:
                    self.add(dict(shard))
            except (OSError, ValueError, zipfile.BadZipFile) as error:
                print(f"shard {path.name} dropped: {error}", flush=True)
            path.unlink(missing_ok=True)
        return len(paths)

    def sample(self) -> tuple[torch.Tensor, torch.Tensor]:
        """tokens int64 [rows, length], spans int64 [rows, 2]"""
        lengths = [length for length, bucket in self.buckets.items() if bucket.filled >= 8]
        length = self.rng.choices(lengths, [self.buckets[length].filled * length for length in lengths])[0]
        bucket = self.buckets[length]
        rows = torch.randint(
            bucket.filled, (self.tokens_per_batch // length,), generator=self.generator, device=self.device
        )
        return bucket.tokens[rows].long(), bucket.spans[rows].long()


def validation_batches(
    encoder: Encoder, vocabulary: Vocabulary, tokens_per_batch: int, num_dialogues: int, seed: int
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Held-out dialogues of all skills and both splits, padded like training batches."""
    rng = random.Random(seed)
    samples = []
    for _ in range(num_dialogues):
        skill, _ = rng.choice(SKILLS)
        samples.append((skill(rng, rng.choice((Split.ENTITY, Split.TEMPLATE))), rng.random() < 0.5))
    groups: dict[int, list[tuple[np.ndarray, int]]] = {}
    for row in encoder.encode(samples):
        indices = vocabulary.index[np.array(row.ids, dtype=np.int32)].astype(np.int64)
        length = next((length for length in LENGTHS if length >= len(indices)), None)
        if length is not None:
            groups.setdefault(length, []).append((indices, row.prompt_length))
    batches = []
    for length, rows in sorted(groups.items()):
        size = tokens_per_batch // length
        for start in range(0, len(rows), size):
            tokens, spans = torch.zeros(size, length, dtype=torch.int64), torch.zeros(size, 2, dtype=torch.int64)
            for i, (indices, prompt_length) in enumerate(rows[start : start + size]):
                tokens[i, : len(indices)] = torch.from_numpy(indices)
                spans[i, 0], spans[i, 1] = prompt_length, len(indices)
            batches.append((tokens, spans))
    return batches
