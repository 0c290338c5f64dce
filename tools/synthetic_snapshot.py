"""The files beside the weights of a synthetic twin's snapshot, in Hugging Face's layout."""

from __future__ import annotations

import hashlib
import json
import lzma
from pathlib import Path

from tools.artifact import ArtifactSource, SamplingDefaults, synthetic_repository
from tools.checkpoints import END_OF_TEXT, HEAD_DIM, NUM_KV_HEADS, RMS_NORM_EPSILON, VOCAB_SIZE, Checkpoint
from tools.errors import ToolError
from tools.synthetic_recipe import RECIPE
from tools.tokenizer_metadata import parse_tokenizer, without_think_tokens

MARKER_NAME = "kipp_synthetic.json"
TOKENIZER_DATA = Path(__file__).resolve().parents[1] / "data" / "qwen3-tokenizer" / "tokenizer.json.xz"


def twin_revision(seed: int) -> str:
    return f"recipe{RECIPE}-seed{seed}"


def snapshot_files(checkpoint: Checkpoint, num_layers: int, seed: int) -> dict[str, bytes]:
    """Name to contents of every file but the weights. The same bytes on every machine; no chat template."""
    return {
        MARKER_NAME: _json({"recipe": RECIPE, "seed": seed, "id": checkpoint.id, "layers": num_layers}),
        "config.json": _json(_config(checkpoint, num_layers)),
        "generation_config.json": _json(_generation_config(checkpoint)),
        "tokenizer.json": _tokenizer_json(checkpoint),
        "tokenizer_config.json": _json(_tokenizer_config(checkpoint)),
    }


def twin_source(checkpoint: Checkpoint, num_layers: int, seed: int) -> ArtifactSource:
    """What the artifact of a twin says when it is written straight, without a snapshot on disk."""
    files = snapshot_files(checkpoint, num_layers, seed)
    hashes = [(name, hashlib.sha256(data).hexdigest()) for name, data in sorted(files.items())]
    tokenizer = parse_tokenizer(files["tokenizer.json"], Path("tokenizer.json"))
    return ArtifactSource(checkpoint, num_layers, synthetic_repository(checkpoint, num_layers), twin_revision(seed),
                          hashes, tokenizer, chat_template=None, sampling=SamplingDefaults())


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _config(checkpoint: Checkpoint, num_layers: int) -> dict[str, object]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": END_OF_TEXT,
        "eos_token_id": checkpoint.eos_token,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": checkpoint.hidden,
        "initializer_range": 0.02,
        "intermediate_size": checkpoint.ffn,
        "max_position_embeddings": checkpoint.context,
        "max_window_layers": num_layers,
        "model_type": "qwen3",
        "num_attention_heads": checkpoint.num_query_heads,
        "num_hidden_layers": num_layers,
        "num_key_value_heads": NUM_KV_HEADS,
        "rms_norm_eps": RMS_NORM_EPSILON,
        "rope_scaling": None,
        "rope_theta": checkpoint.rope_theta,
        "sliding_window": None,
        "tie_word_embeddings": checkpoint.tied_head,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": VOCAB_SIZE,
    }


def _generation_config(checkpoint: Checkpoint) -> dict[str, object]:
    stop = list(checkpoint.stop_tokens)
    return {"bos_token_id": END_OF_TEXT, "eos_token_id": stop if len(stop) > 1 else stop[0],
            "pad_token_id": END_OF_TEXT}


def _tokenizer_config(checkpoint: Checkpoint) -> dict[str, object]:
    eos = "<|endoftext|>" if checkpoint.variant == "base" else "<|im_end|>"
    return {"add_bos_token": False, "bos_token": None, "clean_up_tokenization_spaces": False, "eos_token": eos,
            "model_max_length": checkpoint.context, "pad_token": "<|endoftext|>",
            "tokenizer_class": "Qwen2Tokenizer", "unk_token": None}


def _tokenizer_json(checkpoint: Checkpoint) -> bytes:
    """The genuine tokenizer; for a base checkpoint without the four think/tool tokens."""
    try:
        data = lzma.decompress(TOKENIZER_DATA.read_bytes())
    except (OSError, lzma.LZMAError) as error:
        raise ToolError(f"{TOKENIZER_DATA}: cannot read the tokenizer: {error}") from error
    return data if checkpoint.isolates_think_tokens else without_think_tokens(data, TOKENIZER_DATA)
