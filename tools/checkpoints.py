"""The registry of pinned checkpoints: the mirror of src/kipp_checkpoints.h, which a test compares field by field.

Run it to print the table, or the same as JSON with --json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: the package is one folder up
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tools.command import run_command
from tools.errors import ToolError

NUM_KV_HEADS = 8
HEAD_DIM = 128
VOCAB_SIZE = 151936  # rows of the embedding and of the head
NUM_TOKENS = 151669  # ids from here on are padding rows without a token
FIRST_THINK_TOKEN = 151665  # of the last four, which a base checkpoint's tokenizer lacks
NUM_MERGES = 151387
RMS_NORM_EPSILON = 1e-6
END_OF_TEXT = 151643  # <|endoftext|>
IM_START = 151644  # <|im_start|>
IM_END = 151645  # <|im_end|>
BASE_STOP_TOKENS = (END_OF_TEXT,)
CHAT_STOP_TOKENS = (IM_END, END_OF_TEXT)

VARIANTS = ("base", "instruct", "instruct-2507", "thinking-2507")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One registry entry; the fields and their order are those of the C++ struct."""

    id: str
    repository: str
    revision: str  # commit of the repository; for the demo the first 40 digits of its weights' sha256
    variant: str
    num_layers: int
    hidden: int
    ffn: int
    num_query_heads: int  # the attention width is num_query_heads × 128, not the hidden width
    context: int
    rope_theta: float
    tied_head: bool  # the output head is the token embedding
    isolates_think_tokens: bool  # <think>, </think>, <tool_response>, </tool_response> are added tokens
    is_demo: bool  # bundled, trained by tools/demo; not a Qwen release

    @property
    def query_width(self) -> int:
        return self.num_query_heads * HEAD_DIM

    @property
    def kv_width(self) -> int:
        return NUM_KV_HEADS * HEAD_DIM

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        return BASE_STOP_TOKENS if self.variant == "base" else CHAT_STOP_TOKENS

    @property
    def eos_token(self) -> int:
        """The first stop token, which is also config.json's eos_token_id."""
        return self.stop_tokens[0]


def _entry(id: str, repository: str, revision: str, variant: str, dims: tuple[int, int, int, int, int],
           rope_theta: float, *, tied: bool, demo: bool = False) -> Checkpoint:
    layers, hidden, ffn, heads, context = dims
    return Checkpoint(id, repository, revision, variant, layers, hidden, ffn, heads, context, rope_theta,
                      tied_head=tied, isolates_think_tokens=variant != "base", is_demo=demo)


CHECKPOINTS: tuple[Checkpoint, ...] = (
    _entry("qwen3-0.6b-base", "Qwen/Qwen3-0.6B-Base", "da87bfb608c14b7cf20ba1ce41287e8de496c0cd", "base",
           (28, 1024, 3072, 16, 32768), 1e6, tied=True),
    _entry("qwen3-0.6b", "Qwen/Qwen3-0.6B", "c1899de289a04d12100db370d81485cdf75e47ca", "instruct",
           (28, 1024, 3072, 16, 40960), 1e6, tied=True),
    _entry("qwen3-1.7b-base", "Qwen/Qwen3-1.7B-Base", "ea980cb0a6c2ae4b936e82123acc929f1cec04c1", "base",
           (28, 2048, 6144, 16, 32768), 1e6, tied=True),
    _entry("qwen3-1.7b", "Qwen/Qwen3-1.7B", "70d244cc86ccca08cf5af4e1e306ecf908b1ad5e", "instruct",
           (28, 2048, 6144, 16, 40960), 1e6, tied=True),
    _entry("qwen3-4b-base", "Qwen/Qwen3-4B-Base", "906bfd4b4dc7f14ee4320094d8b41684abff8539", "base",
           (36, 2560, 9728, 32, 32768), 1e6, tied=True),
    _entry("qwen3-4b", "Qwen/Qwen3-4B", "1cfa9a7208912126459214e8b04321603b3df60c", "instruct",
           (36, 2560, 9728, 32, 40960), 1e6, tied=True),
    _entry("qwen3-4b-instruct-2507", "Qwen/Qwen3-4B-Instruct-2507", "cdbee75f17c01a7cc42f958dc650907174af0554",
           "instruct-2507", (36, 2560, 9728, 32, 262144), 5e6, tied=True),
    _entry("qwen3-4b-thinking-2507", "Qwen/Qwen3-4B-Thinking-2507", "768f209d9ea81521153ed38c47d515654e938aea",
           "thinking-2507", (36, 2560, 9728, 32, 262144), 5e6, tied=True),
    _entry("qwen3-8b-base", "Qwen/Qwen3-8B-Base", "49e3418fbbbca6ecbdf9608b4d22e5a407081db4", "base",
           (36, 4096, 12288, 32, 32768), 1e6, tied=False),
    _entry("qwen3-8b", "Qwen/Qwen3-8B", "b968826d9c46dd6066d109eabc6255188de91218", "instruct",
           (36, 4096, 12288, 32, 40960), 1e6, tied=False),
    _entry("qwen3-14b-base", "Qwen/Qwen3-14B-Base", "0b0bd3732e2c374d483664439ea334928b65f304", "base",
           (40, 5120, 17408, 40, 32768), 1e6, tied=False),
    _entry("qwen3-14b", "Qwen/Qwen3-14B", "40c069824f4251a91eefaf281ebe4c544efd3e18", "instruct",
           (40, 5120, 17408, 40, 40960), 1e6, tied=False),
    _entry("qwen3-32b", "Qwen/Qwen3-32B", "9216db5781bf21249d130ec9da846c4624c16137", "instruct",
           (64, 5120, 25600, 64, 40960), 1e6, tied=False),
    _entry("kipp-demo", "kipp/demo", "be1cab85afa949e88e9bdb2a4c27201ff0567e91", "instruct",
           (8, 192, 512, 16, 2048), 1e6, tied=True, demo=True),
)

CHECKPOINT_IDS = tuple(checkpoint.id for checkpoint in CHECKPOINTS)


def find_checkpoint(checkpoint_id: str) -> Checkpoint:
    """The entry with this id; an unknown one is an error that lists the known ones."""
    for checkpoint in CHECKPOINTS:
        if checkpoint.id == checkpoint_id:
            return checkpoint
    raise ToolError(f"unknown checkpoint {checkpoint_id!r}; the registry has {', '.join(CHECKPOINT_IDS)}")


def table() -> str:
    """The registry as aligned columns."""
    names = ("id", "repository", "revision", "variant", "layers", "hidden", "ffn", "heads", "context", "theta", "head")
    rows = [names]
    for c in CHECKPOINTS:
        head = "tied" if c.tied_head else "own"
        rows.append((c.id, c.repository, c.revision, c.variant, str(c.num_layers), str(c.hidden), str(c.ffn),
                     str(c.num_query_heads), str(c.context), f"{c.rope_theta:g}", head))
    widths = [max(len(row[column]) for row in rows) for column in range(len(names))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
                     for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Print the registry of pinned checkpoints.")
    parser.add_argument("--json", action="store_true", help="as a JSON array, every field")
    arguments = parser.parse_args()
    if arguments.json:
        print(json.dumps([dataclasses.asdict(checkpoint) for checkpoint in CHECKPOINTS], indent=2))
    else:
        print(table())
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
