"""docs/artifact.md lists exactly the keys and tensors that the converter writes and the loader asks for."""

from __future__ import annotations

import re
from pathlib import Path

from tools.artifact import ArtifactSource, SamplingDefaults, artifact_metadata
from tools.checkpoints import find_checkpoint
from tools.gguf_writer import Metadata, ValueType
from tools.model_tensors import model_tensors
from tools.tokenizer_metadata import TokenizerMetadata
from tools.weight_schemes import SCHEMES

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL = {"tokenizer.chat_template", "kipp.sampling.temperature", "kipp.sampling.top_k", "kipp.sampling.top_p"}


def table(heading: str) -> dict[str, str]:
    """First column to second column of the first table under a heading."""
    text = (ROOT / "docs" / "artifact.md").read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [re.match(r"\| `([^`]+)` \| ([^|]+) \|", line) for line in text.split("\n\n| scheme")[0].splitlines()]
    return {row[1]: row[2] for row in rows if row}


def type_name(entry: Metadata) -> str:
    if entry.type == ValueType.ARRAY:
        assert entry.element_type is not None
        return f"array of {entry.element_type.name.lower()}"
    return entry.type.name.lower() + (", optional" if entry.key in OPTIONAL else "")


def test_keys_are_those_of_the_converter() -> None:
    source = ArtifactSource(
        checkpoint=find_checkpoint("qwen3-0.6b"),
        num_layers=28,
        repository="r",
        revision="r",
        file_sha256=[("f", "0")],
        tokenizer=TokenizerMetadata(tokens=["a"], types=[1], merges=["a b"], isolates_think_tokens=True),
        chat_template="t",
        sampling=SamplingDefaults(temperature=1.0, top_k=1, top_p=1.0),
    )
    written = {entry.key: type_name(entry) for entry in artifact_metadata(source, SCHEMES["bf16"])}
    assert table("Keys") == written


def test_keys_are_those_of_the_loader() -> None:
    code = "".join((ROOT / "src" / "gguf" / f"bind_{part}.cc").read_text(encoding="utf-8")
                   for part in ("metadata", "tokenizer"))
    read = set(re.findall(r'"((?:general|qwen3|tokenizer|kipp)\.[a-z0-9_.]+)"', code))
    assert set(table("Keys")) == read


def test_tensors_are_those_of_the_converter() -> None:
    untied = find_checkpoint("qwen3-8b")
    names = {re.sub(r"^blk\.\d+\.", "blk.<N>.", tensor.gguf_name) for tensor in model_tensors(untied, 1)}
    assert set(table("Tensors")) == names
