"""`kipp tokenize` and `kipp detokenize`."""

from __future__ import annotations

import base64
import json

import pytest
from kipp_process import FAILURE, OK, Kipp, golden


def test_golden_file_as_it_is(twin: Kipp) -> None:
    cases = golden("tokenizer.jsonl")
    assert [answer["ids"] for answer in twin.lines("tokenize", cases)] == [case["ids"] for case in cases]


def test_golden_plain_by_flag_and_by_field(twin: Kipp) -> None:
    cases = golden("tokenizer.jsonl")
    expected = [case["ids_plain"] for case in cases]
    assert [answer["ids"] for answer in twin.lines("tokenize", cases, "--plain")] == expected
    by_field = [{"text": case["text"], "plain": True} for case in cases]
    assert [answer["ids"] for answer in twin.lines("tokenize", by_field)] == expected
    assert twin.lines("tokenize", [{"text": "<|im_end|>", "plain": False}], "--plain") == [{"ids": [151645]}]


def test_golden_decode(twin: Kipp) -> None:
    cases = golden("decode.jsonl")
    assert [answer["text"] for answer in twin.lines("detokenize", cases)] == [case["decoded"] for case in cases]
    answers = twin.lines("detokenize", cases, "--skip-special")
    assert [answer["text"] for answer in answers] == [case["decoded_skip_special"] for case in cases]
    by_field = [{"ids": case["ids"], "skip_special_tokens": True} for case in cases]
    assert twin.lines("detokenize", by_field) == answers


def test_base64_is_the_same_as_text(twin: Kipp) -> None:
    texts = ["", "a", "ab", "abc", "a\0b", "世界", "<|im_end|>"]
    encoded = [{"text_b64": base64.b64encode(text.encode()).decode()} for text in texts]
    assert twin.lines("tokenize", encoded) == twin.lines("tokenize", [{"text": text} for text in texts])


def test_ids_and_pieces_for_people(twin: Kipp) -> None:
    assert twin.text("tokenize", "Hi 世界") == "13048 220 99489\n"
    assert twin.text("tokenize", "--pieces", 'Hi\n"世界"<|im_end|>') == (
        ' 13048 "Hi"\n   198 "\\n"\n     1 "\\""\n 99489 "世界"\n     1 "\\""\n151645 "<|im_end|>"\n'
    )
    partial = twin.text("tokenize", "--pieces", "🫨").splitlines()
    assert partial[0] == '  9284 "\\xf0\\x9f"' and partial[1] == '   104 "\\xab"'
    assert twin.text("detokenize", "13048", "220", "99489") == "Hi 世界\n"
    assert twin.text("tokenize", stdin="Hi 世界".encode()) == "13048 220 99489\n"


@pytest.mark.parametrize("text", ["tokenize", "run", "[a]", '"quoted"', "'q'", "a,b", "%%", "{}", "a=b", "", " -x"])
def test_arguments_are_taken_literally(twin: Kipp, text: str) -> None:
    ids = twin.lines("tokenize", [{"text": text}])[0]["ids"]
    assert twin.text("tokenize", text).split() == [str(i) for i in ids]
    assert twin.text("tokenize", "--", text).split() == [str(i) for i in ids]


def test_text_that_looks_like_a_flag(twin: Kipp) -> None:
    ids = twin.lines("tokenize", [{"text": "--plain"}])[0]["ids"]
    assert twin.text("tokenize", "--", "--plain").split() == [str(i) for i in ids]
    assert twin.text("tokenize", "--", "++") == "1027\n"


def test_invalid_utf8(twin: Kipp) -> None:
    for arguments, stdin in (([b"abc\xff"], b""), ([], b"abc\xff")):
        done = twin("tokenize", *arguments, stdin=stdin)
        assert done.returncode == FAILURE and not done.stdout
        assert "offset 3" in done.stderr.decode() or "byte 3" in done.stderr.decode()
        done = twin("tokenize", "--replace-invalid", *arguments, stdin=stdin)
        assert done.returncode == OK
        assert done.stdout.decode() == twin.text("tokenize", "abc\ufffd")


def test_negative_ids(twin: Kipp) -> None:
    done = twin("detokenize", "13048", "-5")
    assert done.returncode == FAILURE and not done.stdout
    assert "ids[1]" in done.stderr.decode() and "-5" in done.stderr.decode()
    answer = twin.lines("detokenize", [{"ids": [13048, -5]}], code=FAILURE)[0]
    assert "ids[1]" in answer["error"]["message"]


def test_ids_without_a_token_have_no_text(twin: Kipp) -> None:
    assert twin.text("detokenize", "13048", "151800", "151936", "999999", "99489") == "Hi世界\n"
    assert twin.lines("detokenize", [{"ids": [13048, 4294967295, 99489]}]) == [{"text": "Hi世界"}]


BAD_LINES: list[tuple[bytes, str]] = [
    (b"", "empty"),
    (b"not json", ""),
    (b"[1]", "object"),
    (b'"text"', "object"),
    (b"{}", "text"),
    (b'{"text": "a", "text": "b"}', "text"),
    (b'{"text": "a"} x', ""),
    (b'{"text": 5}', '"text"'),
    (b'{"text": null}', "text"),
    (b'{"text": "a", "text_b64": "YQ=="}', "text_b64"),
    (b'{"text_b64": "YQ="}', "base64"),
    (b'{"text_b64": "YQ==YQ=="}', "base64"),
    (b'{"text_b64": "YR=="}', "base64"),
    (b'{"text_b64": "/w=="}', "UTF-8"),
    (b'{"text": "\xff"}', ""),
    (b'{"text": "\\ud800"}', ""),
    (b'{"text": "a", "plain": 1}', '"plain"'),
    (b'{"text": "a", "frobnicate": 1}', '"frobnicate"'),
    (b"[" * 1000 + b"]" * 1000, ""),
    (b'{"text": "' + b"a" * (16 << 20) + b'"}', "16777216 bytes at most, found"),
]


def test_bad_lines_are_answered_in_their_place(twin: Kipp) -> None:
    good = {"text": "Hi"}
    requests = [item for bad, _ in BAD_LINES for item in (bad, good)]
    answers = twin.lines("tokenize", requests, code=FAILURE)
    assert answers[1::2] == [{"ids": [13048]}] * len(BAD_LINES)
    for index, (answer, (_, part)) in enumerate(zip(answers[::2], BAD_LINES, strict=True)):
        assert list(answer) == ["error"] and list(answer["error"]) == ["code", "message", "line"]
        assert answer["error"]["code"] == "invalid_argument"
        assert answer["error"]["line"] == 2 * index + 1
        assert part in answer["error"]["message"], answer


@pytest.mark.parametrize(
    ("bad", "part"),
    [
        ({"ids": "1"}, "array"),
        ({"ids": [1, "2"]}, "ids[1]"),
        ({"ids": [1.5]}, "ids[0]"),
        ({"ids": [4294967296]}, "ids[0]"),
        ({"ids": [-5]}, "ids[0]"),
        ({"ids": None}, "ids"),
        ({}, "ids"),
        ({"ids": [1], "text": "x"}, '"text"'),
    ],
)
def test_bad_detokenize_lines(twin: Kipp, bad: dict[str, object], part: str) -> None:
    assert part in twin.lines("detokenize", [bad], code=FAILURE)[0]["error"]["message"]


def test_input_without_a_last_newline_and_empty_input(twin: Kipp) -> None:
    assert twin.text("tokenize", "--jsonl", stdin=b'{"text": "Hi"}') == '{"ids":[13048]}\n'
    assert twin.text("tokenize", "--jsonl", stdin=b'{"text": "Hi"}\r\n') == '{"ids":[13048]}\n'
    assert twin.text("tokenize", "--jsonl", stdin=b"") == ""


def test_answers_come_while_the_input_is_open(twin: Kipp) -> None:
    process = twin.popen("tokenize", "--jsonl", stdin=-1, stdout=-1)
    assert process.stdin is not None and process.stdout is not None
    for _ in range(3):
        process.stdin.write(b'{"text": "Hi"}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"ids": [13048]}
    process.stdin.close()
    assert process.wait(timeout=60) == OK
    process.stdout.close()
