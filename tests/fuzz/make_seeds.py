"""Writes the seeds of the fuzzers, a few KB each, from the golden files: make_seeds.py FOLDER fills FOLDER/<fuzzer>/.

The seeds of gguf_fuzz need the C++ artifact builder: gguf_fuzz_seeds.cc.
"""

from __future__ import annotations

import json
import random
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
MAX_SEED_BYTES = 4096
SEEDS_EACH = 40


def golden(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text(encoding="utf-8").splitlines()]


def compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def spread(seeds: Iterable[bytes]) -> list[bytes]:
    """At most SEEDS_EACH of the seeds that are small enough, evenly from the whole list."""
    small = [seed for seed in seeds if len(seed) <= MAX_SEED_BYTES]
    step = max(1, len(small) // SEEDS_EACH)
    return small[::step][:SEEDS_EACH]


def chat_seeds() -> Iterator[bytes]:
    for case in golden("chat.jsonl"):
        fields = ("messages", "tools", "enable_thinking", "add_generation_prompt")
        yield compact({key: case[key] for key in fields if case.get(key) is not None})


def json_seeds() -> Iterator[bytes]:
    for case in golden("json_dumps.jsonl"):
        yield case["text"].encode()
    yield from chat_seeds()
    numbers = "[1e400,-0,0.1,1E+16,12345678901234567890123]"
    for text in (numbers, r'"\ud83d\ude00\u0000"', r'"\ud83d"', '{"a":1,"a":2}', "[" * 99):
        yield text.encode()


def tokenizer_seeds() -> Iterator[bytes]:
    """Texts, and after a V a vocabulary: lines of a type's digit and a token, or of a merge."""
    for case in golden("tokenizer.jsonl"):
        yield case["text"].encode()


def vocabulary_seeds() -> Iterator[bytes]:
    yield b"V1ab\na b\n1abc\nab c\n3<|end|>\n4<think>\n"
    yield b"V1aa\na a\n1aaaa\naa aa\n5[PAD1]\n"


def jsonl_seeds() -> Iterator[bytes]:
    """The number of pieces, then lines."""
    lines = [compact({"text": case["text"], "plain": True, "ids": case["ids"]}) for case in golden("tokenizer.jsonl")]
    for i in range(SEEDS_EACH // 2):
        yield bytes([i]) + b"\n".join(spread(lines)[i : i + 3])
    yield b"\x03" + b'{"text_b64":"SGk=","ids":[1]}\r\n\n{"ids":[2147483648],"seed":18446744073709551615,"top_p":0.5}'
    yield b"\x10" + b'{"ids":[],"decode":-1}\nno json\n' + b"x" * 300 + b'\n{"text":null,"ids":[7]}'


def safetensors(header: Any, data: bytes) -> bytes:
    text = compact(header)
    return struct.pack("<Q", len(text)) + text + data


def safetensors_seeds() -> Iterator[bytes]:
    def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    yield safetensors({}, b"")
    yield safetensors({"__metadata__": {"format": "pt"}, "a": entry("F32", [2, 2], 0, 16)}, bytes(16))
    yield safetensors({"b": entry("I32", [3], 8, 20), "a": entry("F32", [1, 2], 0, 8)}, bytes(range(20)))
    yield safetensors({"scalar": entry("F32", [], 0, 4), "none": entry("I32", [0, 5], 4, 4)}, b"\x00\x00\xc0\x7f")
    yield safetensors({"logits": entry("F32", [2, 3], 0, 24), "ids": entry("I32", [2], 24, 32)}, bytes(32))
    yield safetensors({"gap": entry("F32", [1], 4, 8)}, bytes(8))
    yield safetensors({"half": entry("BF16", [1], 0, 2)}, bytes(2))


def openai_seeds() -> Iterator[bytes]:
    """A byte that says whether the server is lenient, then a request's body."""
    for case in golden("chat.jsonl")[::8]:
        yield b"0" + compact({key: case[key] for key in ("messages", "tools") if case.get(key) is not None})
    for prompt in ("Hi", ["a", "b"], [1, 2], [[1], [2, 3]], "", [], [1, "a"]):
        yield b"0" + compact({"prompt": prompt, "max_tokens": 2, "stop": "x", "logprobs": 2, "echo": True})
    sampling = {"temperature": 0, "top_p": 0.5, "top_k": -1, "min_p": 0, "seed": -9, "repetition_penalty": 1.1,
                "logit_bias": {"42": -100, "151668": 5}, "presence_penalty": -2, "frequency_penalty": 2, "n": 3,
                "min_tokens": 1, "stop": ["a", "b"], "stop_token_ids": [7], "ignore_eos": True, "priority": -1,
                "cache_salt": "s", "user": "u", "metadata": {"k": "v"}, "stream": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    message = {"role": "assistant", "content": [{"type": "text", "text": "a"}], "reasoning_content": "r",
               "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1.50}}}]}
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {}, "strict": False}}
    chat = {"messages": [message], "tools": [tool], "tool_choice": "none", "parallel_tool_calls": False,
            "logprobs": True, "top_logprobs": 2, "response_format": {"type": "text"}, "max_completion_tokens": 2,
            "chat_template_kwargs": {"enable_thinking": False}, "audio": None, "store": False}
    yield b"0" + compact({"prompt": "Hi"} | sampling)
    yield b"0" + compact(chat | sampling)
    yield b"1" + compact(chat | {"messages": [{"role": "assistant", "content": "The"}], "continue_final_message": True})
    yield b"1" + compact({"tokens": [1, 2], "skip_special_tokens": True, "other": [{}]})
    yield b"0" + compact({"prompt": "a", "plain": True, "return_token_strs": True})
    for text in ('{"prompt":"a","prompt":"b"}', '{"prompt":"\\ud83d"}', '{"prompt":1e400}', "[1]", "\ufeff{}"):
        yield b"0" + text.encode()


def output_seeds() -> Iterator[bytes]:
    """An options byte and a text in which F8 … FD are added tokens; or S, stop strings, NUL and a text."""
    yield b"\x00Hello there.\n"
    yield b"\x01I think\n\xf9\n\nYes.\xfd"
    call = b'\xfa\n{"name": "f", "arguments": {"a": [1, 2.50, "x\\n\xc3\xa9"]}}\n\xfb'
    yield b"\x00\xf8\nhm\n\xf9\n\nLet me see.\n" + call + b"\n" + call
    yield b"\x00\xfa\n\xfc{}}\n\xfb\xfa\n\xfcnull}\n\xfb" + b"\xfa no call \xfb after it"
    yield b'\x02\xfa\n\xfc{"cut": "of'
    yield b'\x00\xfa{"arguments": "\\u0041", "name": "g"}\xfb'
    yield b"\x00\xe8\xf8argu\n"  # a broken character is content: no <think> counts after it
    yield b"\x00\xd7\xf8\nhm\n\xf9\n me\xfa\n{"
    yield "\x00Grüße 🫨🫨🫨".encode()  # cut inside the tokens of a character
    yield b"Sstop\nEND\n\xe4\xb8\x00some text, EN, sto, END of it"
    yield b"Saba\nab\x00aabaabab"


def detokenizer_seeds() -> Iterator[bytes]:
    """Bytes as ids; F5 … F7 and four bytes are an id of any kind."""
    yield "Grüße 世界 🙂".encode()
    yield b"\xe4\xb8\xf5\x00\x00\x00\x00\xad\xf5\x01\x00\x00\x00\xf0\x9f"
    yield b"a\xf6\xff\xff\xff\xff"
    yield b"\xf7\x75\x50\x02\x00b\xc3"
    yield b"\xf5\x02\x00\x00\x00 [PAD] \xf5\x03\x00\x00\x00"
    yield b"\xed\xa0\x80\xed\xb0\x80 \xf4\x90\x80\x80 \xc0\xaf"
    yield b""


def scheduler_seeds() -> Iterator[bytes]:
    """Limits in the first ten bytes, then operations: any bytes are some."""
    for seed in range(SEEDS_EACH):
        yield random.Random(seed).randbytes(50 * (1 + seed))


def http_seeds() -> Iterator[bytes]:
    """What a client sends on one connection."""
    host = b"Host: x\r\n"
    yield b"GET /v1/models HTTP/1.1\r\n" + host + b"\r\n"
    yield b"HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nOPTIONS * HTTP/1.1\r\n" + host + b"Origin: o\r\n\r\n"
    post = b"POST /stream?q HTTP/1.1\r\n" + host
    yield post + b"Content-Length: 4\r\nExpect: 100-continue\r\n\r\nbody" + post + b"\r\n"
    yield post + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2;n=v;q=\"s\\\"\"\r\nbc\r\n0\r\nT: r\r\n\r\n"
    yield post + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n"
    yield post + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    yield post + b"Content-Length: +4\r\n\r\nbody"
    yield post + b"A: b\r\n c\r\n\r\n"
    yield post + b"Content-Length: 5000\r\n\r\n"
    yield b"\r\nGET http://h:1?q HTTP/1.1\r\n" + host + b"X-Request-Id: i\r\nConnection: te, close\r\n\r\n"
    yield b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    yield b"\x16\x03\x01\x02\x00"
    yield b"GET /" + b"a" * 3000
    yield b"GET / HTTP/1.1\r\nA: " + b"a" * 3000


def main(folder: Path) -> None:
    corpora = {
        "chat_fuzz": spread(chat_seeds()),
        "detokenizer_fuzz": list(detokenizer_seeds()),
        "http_fuzz": list(http_seeds()),
        "json_fuzz": spread(json_seeds()),
        "jsonl_fuzz": spread(jsonl_seeds()),
        "openai_fuzz": list(openai_seeds()),
        "output_fuzz": list(output_seeds()),
        "safetensors_fuzz": list(safetensors_seeds()),
        "scheduler_fuzz": list(scheduler_seeds()),
        "tokenizer_fuzz": [*spread(tokenizer_seeds()), *vocabulary_seeds()],
    }
    for name, seeds in corpora.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i, seed in enumerate(seeds):
            (folder / name / f"seed-{i:02}").write_bytes(seed)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_seeds.py FOLDER")
    main(Path(sys.argv[1]))
