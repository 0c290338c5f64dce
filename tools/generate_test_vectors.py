"""Makes reference vectors with Transformers from a snapshot or an artifact, for the gates to compare with.

The output folder gets manifest.json and one safetensors file a prompt: ids, the final hidden state at every position
(the gates recompute every logit from it), full-vocabulary logits and residual taps at some positions, 8 greedy ids.
A reference in BF16 also leaves nmse-max.txt with its looser bound, which the manifest announces; an FP32 one removes
it. The reference of a quantised artifact holds the weights that its bytes stand for; how far these lead from the BF16
weights goes into the manifest, and needs the BF16 artifact's vectors. Needs requirements/reference.txt.

With --prompts-only no reference runs, and the files hold ids alone: enough for every gate but Phase 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib
import json
import platform
import re
import sys
from pathlib import Path

import numpy as np

if __package__ in (None, ""):  # run as a script: the package is one folder up
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from safetensors.numpy import save
from tqdm import tqdm

from tools.atomic_file import write_file
from tools.checkpoints import VOCAB_SIZE
from tools.errors import ToolError, mismatch, run_tool
from tools.reference_source import ReferenceSource, open_source
from tools.strict_json import parse_json_object

FORMAT_VERSION = 1
BF16_NMSE_MAX = 2e-3  # of a reference that itself rounds to BF16: docs/numerics.md
DEFAULT_PROMPTS = Path(__file__).resolve().parents[1] / "tests" / "vectors" / "prompts.jsonl"


@dataclasses.dataclass(frozen=True)
class Prompt:
    """One line of a prompt file."""

    name: str
    ids: list[int]
    text: str | None
    logit_positions: list[int]

    @property
    def tap_positions(self) -> list[int]:
        last = len(self.ids) - 1
        return sorted({0, last // 2, last})


def parse_positions(spec: object, num_tokens: int, where: str) -> list[int]:
    """last, all, none, or a number of positions spread evenly from first to last."""
    if spec == "none":
        return []
    if spec == "last":
        return [num_tokens - 1]
    if spec == "all":
        return list(range(num_tokens))
    if re.fullmatch(r"[1-9][0-9]{0,5}", str(spec)):
        count = min(int(str(spec)), num_tokens)
        return sorted({round(index) for index in np.linspace(num_tokens - 1, 0, count)})
    raise mismatch(where, "logit positions", "last, all, none or a count", spec)


class PromptReader:
    """Turns lines {"name", "text" | "ids" | "messages", …} into token ids with the source's own tokenizer."""

    def __init__(self, source: ReferenceSource, arguments: argparse.Namespace) -> None:
        from tokenizers import Tokenizer  # a reference package: only this tool needs it

        self._source = source
        self._arguments = arguments
        self._tokenizer = Tokenizer.from_str(source.tokenizer_json)

    def read(self, path: Path) -> list[Prompt]:
        prompts: list[Prompt] = []
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            if line.strip():
                prompt = self._parse(parse_json_object(line, f"{path}:{number}"), f"{path}:{number}")
                if any(other.name == prompt.name for other in prompts):
                    raise ToolError(f"{path}:{number}: the name {prompt.name} is given twice")
                prompts.append(prompt)
        if not prompts:
            raise ToolError(f"{path}: holds no prompts")
        return prompts

    def _parse(self, line: dict, where: str) -> Prompt:
        known = {"name", "text", "ids", "messages", "template_arguments", "num_tokens", "logit_positions"}
        if set(line) - known:
            raise mismatch(where, "fields", sorted(known), sorted(set(line) - known))
        name = line.get("name")
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", name):
            raise mismatch(where, "name", "lower-case letters, digits, - and _", name)
        if sum(field in line for field in ("text", "ids", "messages")) != 1:
            raise mismatch(where, "fields", "one of text, ids, messages", sorted(line))
        text = self._text(line, where)
        ids = line["ids"] if text is None else self._tokenizer.encode(text, add_special_tokens=False).ids
        ids, truncated = self._limit(ids, line.get("num_tokens"), where)
        positions = parse_positions(line.get("logit_positions", self._arguments.logit_positions), len(ids), where)
        return Prompt(name, ids, self._text_of(ids) if truncated and text is not None else text, positions)

    def _text_of(self, ids: list[int]) -> str | None:
        """The text of a cut prompt, if it leads back to the same ids: then it tests the tokenizer too."""
        text = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text if self._tokenizer.encode(text, add_special_tokens=False).ids == ids else None

    def _text(self, line: dict, where: str) -> str | None:
        if "messages" not in line:
            return line.get("text")
        if self._source.chat_template is None:
            raise ToolError(f"{where}: {self._source.path} has no chat template")
        from transformers import PreTrainedTokenizerFast

        renderer = PreTrainedTokenizerFast(tokenizer_object=self._tokenizer)
        return renderer.apply_chat_template(
            line["messages"], chat_template=self._source.chat_template, tokenize=False, add_generation_prompt=True,
            **line.get("template_arguments", {}))

    def _limit(self, ids: object, num_tokens: object, where: str) -> tuple[list[int], bool]:
        """num_tokens asks for exactly that many, --max-tokens for no more; the context holds in any case."""
        if not isinstance(ids, list) or not ids or not all(type(i) is int and 0 <= i < VOCAB_SIZE for i in ids):
            raise mismatch(where, "ids", f"ids below {VOCAB_SIZE}, at least one", "something else")
        if num_tokens is not None and (type(num_tokens) is not int or not 1 <= num_tokens <= len(ids)):
            raise mismatch(where, "num_tokens", f"1 to {len(ids)}", num_tokens)
        limit = min(num_tokens or len(ids), self._arguments.max_tokens or len(ids))
        if limit > self._source.checkpoint.context:
            raise mismatch(where, "tokens", f"at most {self._source.checkpoint.context}", limit)
        return ids[:limit], limit < len(ids)


def reference_facts(arguments: argparse.Namespace) -> dict[str, object]:
    import safetensors
    import tokenizers
    import torch
    import transformers

    device = torch.cuda.get_device_name() if arguments.device.startswith("cuda") else platform.machine()
    return {
        "packages": {"numpy": np.__version__, "safetensors": safetensors.__version__,
                     "tokenizers": tokenizers.__version__, "torch": torch.__version__,
                     "transformers": transformers.__version__},
        "python": platform.python_version(),
        "device": f"{arguments.device} ({device})",
        "dtype": arguments.dtype,
        "attention": "eager",
        "tf32": False,
    }


def write_bound(output: Path, dtype: str) -> float | None:
    """The bound of this reference in nmse-max.txt, or no such file: one of an earlier run would loosen the gates.

    Until the manifest that announces the same is written too, the gates refuse the folder.
    """
    path = output / "nmse-max.txt"
    if dtype == "bfloat16":
        write_file(path, f"{BF16_NMSE_MAX}\n".encode())
        return BF16_NMSE_MAX
    path.unlink(missing_ok=True)
    return None


def write_vectors(source: ReferenceSource, prompts: list[Prompt], arguments: argparse.Namespace) -> None:
    from tools.reference_loss import Bf16Vectors, Loss, loss_of
    from tools.reference_model import DTYPES, final_hidden_with_rounded_kv, load_reference, observe

    output: Path = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    bf16 = Bf16Vectors(arguments.bf16_vectors, source, arguments.dtype) if arguments.bf16_vectors else None
    model = load_reference(source, arguments.device, DTYPES[arguments.dtype])
    num_tokens = source.num_tokens
    bound = write_bound(output, arguments.dtype)
    entries, total, rounding, worst_prompt = [], Loss(), Loss(), 0.0
    for prompt in tqdm(prompts, desc="prompts", disable=None):
        seen = observe(model, prompt.ids, prompt.logit_positions, prompt.tap_positions, num_tokens)
        if not np.isfinite(seen.final_hidden).all():
            raise ToolError(f"{source.path}: prompt {prompt.name}: the reference's final hidden state is not finite")
        data = save({
            "ids": np.array(prompt.ids, dtype=np.int32),
            "final_hidden": seen.final_hidden,
            "logit_positions": np.array(prompt.logit_positions, dtype=np.int32),
            "logits": seen.logits,
            "tap_positions": np.array(prompt.tap_positions, dtype=np.int32),
            "taps": seen.taps,
            "greedy": seen.greedy,
        })
        write_file(output / f"{prompt.name}.safetensors", data)
        entries.append(entry_of(prompt, data))
        if bf16:
            loss = loss_of(model.lm_head, seen.final_hidden, bf16.final_hidden(prompt.name, prompt.ids))
            entries[-1]["loss_against_bf16"] = loss.facts()
            total.add(loss)
        if arguments.dtype == "float32":
            cost = loss_of(model.lm_head, final_hidden_with_rounded_kv(model, prompt.ids), seen.final_hidden)
            entries[-1]["kv_rounding"] = cost.facts()
            rounding.add(cost)
            worst_prompt = max(worst_prompt, cost.nmse)
    write_manifest(source, output, {
        "reference": reference_facts(arguments),
        "nmse_max": bound,
        "loss_against_bf16": {"manifest_sha256": bf16.manifest_sha256, **total.facts()} if bf16 else None,
        "kv_rounding": {**rounding.facts(), "worst_prompt_nmse": worst_prompt} if rounding.num_positions else None,
    }, entries)


def write_prompts(source: ReferenceSource, prompts: list[Prompt], output: Path) -> None:
    """The prompts without a reference."""
    output.mkdir(parents=True, exist_ok=True)
    write_bound(output, "float32")
    entries = []
    for prompt in prompts:
        data = save({"ids": np.array(prompt.ids, dtype=np.int32)})
        write_file(output / f"{prompt.name}.safetensors", data)
        entries.append(entry_of(prompt, data))
    write_manifest(source, output, {"reference": None, "nmse_max": None, "loss_against_bf16": None}, entries)


def entry_of(prompt: Prompt, data: bytes) -> dict[str, object]:
    return {"name": prompt.name, "file": f"{prompt.name}.safetensors", "sha256": hashlib.sha256(data).hexdigest(),
            "num_tokens": len(prompt.ids), "text": prompt.text}


def write_manifest(source: ReferenceSource, output: Path, facts: dict[str, object],
                   entries: list[dict[str, object]]) -> None:
    manifest = {
        "format_version": FORMAT_VERSION,
        "checkpoint_id": source.checkpoint.id,
        "repository": source.repository,
        "revision": source.revision,
        "quant_scheme": source.quant_scheme,
        "header_sha256": source.header_sha256,
        **facts,
        "prompts": entries,
    }
    write_file(output / "manifest.json", (json.dumps(manifest, indent=2, ensure_ascii=True) + "\n").encode())


def require_packages(names: tuple[str, ...]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ToolError(f"needs the packages of requirements/reference.txt: {error}") from error


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, metavar="PATH", help="a snapshot folder or an artifact")
    parser.add_argument("--checkpoint", metavar="ID", help="registry entry of a snapshot that is not a synthetic twin")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--bf16-vectors", type=Path, metavar="DIR",
                        help="the vectors of the BF16 artifact: for a quantised one, to say what its scheme costs")
    parser.add_argument("--prompts", type=Path, default=DEFAULT_PROMPTS, metavar="FILE",
                        help="JSON Lines of name and text, ids or messages (default: tests/vectors/prompts.jsonl)")
    parser.add_argument("--logit-positions", default="last", metavar="last|all|none|K",
                        help="where full logits are stored, unless the prompt says so itself (default: last)")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="cut longer prompts")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--prompts-only", action="store_true", help="no reference: ids alone")
    arguments = parser.parse_args(argv)
    if arguments.max_tokens is not None and arguments.max_tokens < 1:
        raise ToolError(f"--max-tokens {arguments.max_tokens}: expected at least 1")
    if not arguments.model.exists():
        raise ToolError(f"{arguments.model}: no such file or folder")
    require_packages(("tokenizers",) if arguments.prompts_only else ("torch", "transformers"))
    source = open_source(arguments.model, arguments.checkpoint)
    prompts = PromptReader(source, arguments).read(arguments.prompts)
    if arguments.prompts_only:
        if arguments.bf16_vectors is not None or arguments.dtype != "float32":
            raise ToolError("--prompts-only leaves no reference to compare --bf16-vectors with, or to have a --dtype")
        write_prompts(source, prompts, arguments.output)
    else:
        if (source.quant_scheme != "bf16") != (arguments.bf16_vectors is not None):
            raise ToolError(f"{arguments.model}: scheme {source.quant_scheme}: --bf16-vectors is for quantised "
                            "artifacts, which need it")
        write_vectors(source, prompts, arguments)
    print(arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(run_tool(main))
