"""tokenizer.json to what an artifact stores: tokens, token types and merges, checked to be the family's tokenizer.

Only tokenizer.json counts: `added_tokens_decoder` of tokenizer_config.json is ignored, because a base checkpoint lists
the four think/tool tokens there although its tokenizer splits them.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from pathlib import Path

from tools.checkpoints import END_OF_TEXT, NUM_MERGES, NUM_TOKENS, VOCAB_SIZE
from tools.errors import ToolError, mismatch
from tools.strict_json import parse_json_object

NUM_BASE_TOKENS = 151643  # those of the BPE vocabulary; added tokens follow
# One BPE for the whole family: sha256 over every token in id order, then every merge, each followed by a line feed.
BPE_SHA256 = "a577405ffc533161b5a1148a82dc662c6f759ea7ff84334fe80de218fcd29123"

CONTROL_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
PLAIN_ADDED_TOKENS = (
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
    "<|repo_name|>", "<|file_sep|>",
)  # fmt: skip
THINK_TOKENS = ("<tool_response>", "</tool_response>", "<think>", "</think>")
FIRST_THINK_TOKEN = END_OF_TEXT + len(CONTROL_TOKENS) + len(PLAIN_ADDED_TOKENS)

SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class TokenType(enum.IntEnum):
    """GGUF's token types, as far as they occur."""

    NORMAL = 1
    CONTROL = 3  # added, "special": true
    USER_DEFINED = 4  # added, "special": false
    UNUSED = 5  # an id without a token


@dataclasses.dataclass(frozen=True)
class TokenizerMetadata:
    """What the artifact stores of the tokenizer."""

    tokens: list[str]  # [VOCAB_SIZE] in the GPT-2 byte alphabet, added ones literally, [PADn] where there is none
    types: list[int]  # [VOCAB_SIZE]
    merges: list[str]  # [NUM_MERGES] "left right" in rank order
    isolates_think_tokens: bool

    def with_think_tokens(self, isolate: bool) -> TokenizerMetadata:
        """The same tokenizer with the four think/tool tokens isolated, or left to BPE."""
        if isolate == self.isolates_think_tokens:
            return self
        tokens, types = list(self.tokens), list(self.types)
        for index, text in enumerate(THINK_TOKENS):
            token_id = FIRST_THINK_TOKEN + index
            tokens[token_id] = text if isolate else _padding_token(token_id)
            types[token_id] = TokenType.USER_DEFINED if isolate else TokenType.UNUSED
        return TokenizerMetadata(tokens, types, self.merges, isolate)


def _padding_token(token_id: int) -> str:
    return f"[PAD{token_id}]"


def parse_tokenizer(data: bytes, path: Path) -> TokenizerMetadata:
    """Checks a tokenizer.json against the family's and extracts it."""
    return extract_tokenizer(parse_json_object(data, path), path)


def extract_tokenizer(document: dict, path: Path) -> TokenizerMetadata:
    _check_pipeline(document, path)
    isolates, added = _added_tokens(document.get("added_tokens"), path)
    model = _checked_dict(document.get("model"), path, "model")
    base_tokens = _base_tokens(model, path)
    merges = _merges(model, path)
    _check_digest(base_tokens, merges, path)
    padding = [_padding_token(token_id) for token_id in range(NUM_BASE_TOKENS + len(added), VOCAB_SIZE)]
    types = ([TokenType.NORMAL] * NUM_BASE_TOKENS + [kind for _, kind in added] + [TokenType.UNUSED] * len(padding))
    tokens = base_tokens + [text for text, _ in added] + padding
    return TokenizerMetadata(tokens, [int(kind) for kind in types], merges, isolates)


def _checked_dict(value: object, path: Path, item: str) -> dict:
    if not isinstance(value, dict):
        raise mismatch(path, item, "an object", type(value).__name__)
    return value


def _check_pipeline(document: dict, path: Path) -> None:
    """Normaliser, splitter and the rest are compiled into Kipp, so the file must describe exactly those."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": SPLIT_PATTERN}, "behavior": "Isolated", "invert": False}
    expected = {
        "truncation": None,
        "padding": None,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "decoder": byte_level,
    }
    for item, value in expected.items():
        if document.get(item) != value:
            raise mismatch(path, item, json.dumps(value), json.dumps(document.get(item)))
    model = _checked_dict(document.get("model"), path, "model")
    expected_model = {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False, "byte_fallback": False}
    for item, value in expected_model.items():
        if model.get(item) != value:
            raise mismatch(path, f"model.{item}", json.dumps(value), json.dumps(model.get(item)))
    if model.get("ignore_merges", False) is not False:
        raise mismatch(path, "model.ignore_merges", "false", json.dumps(model["ignore_merges"]))
    for item in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(item) not in (None, ""):
            raise mismatch(path, f"model.{item}", "none", json.dumps(model[item]))


def _base_tokens(model: dict, path: Path) -> list[str]:
    vocab = _checked_dict(model.get("vocab"), path, "model.vocab")
    if len(vocab) != NUM_BASE_TOKENS:
        raise mismatch(path, "model.vocab", f"{NUM_BASE_TOKENS} tokens", len(vocab))
    tokens: list[str | None] = [None] * NUM_BASE_TOKENS
    for text, token_id in vocab.items():
        if type(token_id) is not int or not 0 <= token_id < NUM_BASE_TOKENS or tokens[token_id] is not None:
            raise mismatch(path, f"model.vocab[{text!r}]", f"an own id below {NUM_BASE_TOKENS}", token_id)
        tokens[token_id] = text
    return [text for text in tokens if text is not None]


def _merges(model: dict, path: Path) -> list[str]:
    """Both spellings occur: "left right", and since tokenizers 0.20 ["left", "right"]."""
    listed = model.get("merges")
    if not isinstance(listed, list) or len(listed) != NUM_MERGES:
        found = len(listed) if isinstance(listed, list) else type(listed).__name__
        raise mismatch(path, "model.merges", f"{NUM_MERGES} merges", found)
    merges = []
    for rank, merge in enumerate(listed):
        parts = merge.split(" ") if type(merge) is str else merge
        if type(parts) is not list or len(parts) != 2 or type(parts[0]) is not str or type(parts[1]) is not str:
            raise mismatch(path, f"model.merges[{rank}]", "two tokens", merge)
        merges.append(f"{parts[0]} {parts[1]}")
    return merges


def _check_digest(tokens: list[str], merges: list[str], path: Path) -> None:
    found = hashlib.sha256("".join(f"{line}\n" for line in (*tokens, *merges)).encode()).hexdigest()
    if found != BPE_SHA256:
        raise mismatch(path, "sha256 of model.vocab and model.merges", BPE_SHA256, found)


def _added_tokens(listed: object, path: Path) -> tuple[bool, list[tuple[str, TokenType]]]:
    """The 26 added tokens, or the 22 without the four think/tool ones; anything else is another tokenizer."""
    if not isinstance(listed, list):
        raise mismatch(path, "added_tokens", "a list", type(listed).__name__)
    expected = [(text, TokenType.CONTROL) for text in CONTROL_TOKENS]
    expected += [(text, TokenType.USER_DEFINED) for text in (*PLAIN_ADDED_TOKENS, *THINK_TOKENS)]
    if len(listed) not in (len(expected) - len(THINK_TOKENS), len(expected)):
        raise mismatch(path, "added_tokens", f"{len(expected) - len(THINK_TOKENS)} or {len(expected)}", len(listed))
    expected = expected[: len(listed)]
    for index, (text, kind) in enumerate(expected):
        wanted = {"id": NUM_BASE_TOKENS + index, "content": text, "single_word": False, "lstrip": False,
                  "rstrip": False, "normalized": False, "special": kind == TokenType.CONTROL}
        if listed[index] != wanted:
            raise mismatch(path, f"added_tokens[{index}]", json.dumps(wanted), json.dumps(listed[index]))
    return NUM_BASE_TOKENS + len(listed) == NUM_TOKENS, expected


def without_think_tokens(data: bytes, path: Path) -> bytes:
    """A tokenizer.json as a base checkpoint ships it, from an instruct-era one."""
    document = parse_json_object(data, path)
    kept = [token for token in document["added_tokens"] if token["content"] not in THINK_TOKENS]
    if len(kept) != len(document["added_tokens"]) - len(THINK_TOKENS):
        raise ToolError(f"{path}: does not declare the tokens {', '.join(THINK_TOKENS)}")
    document["added_tokens"] = kept
    return json.dumps(document, ensure_ascii=False, indent=2).encode("utf-8")
