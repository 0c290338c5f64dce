"""`kipp ppl`: perplexity, checked against the logits that `kipp run --top` prints."""

from __future__ import annotations

import json
import math
import os
import pty
import signal
import time
from pathlib import Path

import pytest
from kipp_process import FAILURE, INTERRUPTED, Kipp

NUM_TOKENS = 151669
TEXT = "one two three four"


def reference_mean_nll(kipp: Kipp, ids: list[int]) -> float:
    total = 0.0
    for end in range(1, len(ids)):
        prefix = kipp.text("detokenize", *[str(i) for i in ids[:end]])[:-1]
        rows = [line.split(maxsplit=3) for line in kipp.text("run", "--top", str(NUM_TOKENS), prefix).splitlines()]
        assert len(rows) == NUM_TOKENS
        logits = {int(row[1]): float(row[2]) for row in rows}
        best = max(logits.values())
        log_sum = best + math.log(math.fsum(math.exp(value - best) for value in logits.values()))
        total += log_sum - logits[ids[end]]
    return total / (len(ids) - 1)


def measure(kipp: Kipp, text: str, *arguments: str) -> dict[str, float]:
    return json.loads(kipp.text("ppl", "--json", *arguments, stdin=text.encode()))


def test_against_the_logits(twin: Kipp) -> None:
    ids = [int(i) for i in twin.text("tokenize", TEXT).split()]
    result = measure(twin, TEXT)
    assert result["tokens"] == len(ids) and result["scored_tokens"] == len(ids) - 1
    assert result["mean_nll"] == pytest.approx(reference_mean_nll(twin, ids), rel=1e-5)
    assert result["perplexity"] == pytest.approx(math.exp(result["mean_nll"]), rel=1e-12)


def test_every_token_but_the_first_is_scored_once(twin: Kipp) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 2
    num_tokens = len(twin.text("tokenize", text).split())
    whole = measure(twin, text)
    for window, stride in ((8, 4), (8, 7), (num_tokens, 3), (2, 1)):
        result = measure(twin, text, "--window", str(window), "--stride", str(stride))
        assert result["scored_tokens"] == num_tokens - 1
        assert (result["window"], result["stride"]) == (window, stride)
        assert (result["mean_nll"] == whole["mean_nll"]) == (window == num_tokens)


def test_rows_beyond_one_piece(twin: Kipp) -> None:
    """More rows than are held at once, and a window that scores exactly what a shorter text does."""
    text = "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 3
    ids = twin.text("tokenize", text).split()
    head = twin.text("detokenize", *ids[:30])[:-1]
    whole, part = measure(twin, text), measure(twin, head)
    assert part["scored_tokens"] == 29 and whole["scored_tokens"] == len(ids) - 1 > 64
    windows = measure(twin, head, "--window", "30", "--stride", "29")
    assert windows["mean_nll"] == part["mean_nll"]


def test_report_for_people_from_a_file(twin: Kipp, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    result = measure(twin, TEXT)
    assert twin.text("ppl", path) == (
        f"tokens: {result['tokens']} ({result['scored_tokens']} scored)\n"
        f"mean NLL: {result['mean_nll']:.6f}\nperplexity: {result['perplexity']:.4f}\n"
    )


def test_plain(twin: Kipp) -> None:
    assert measure(twin, "a<|im_end|>")["tokens"] == 2
    assert measure(twin, "a<|im_end|>", "--plain")["tokens"] == 7


@pytest.mark.parametrize(
    ("arguments", "text", "part"),
    [
        ([], b"", "0 tokens"),
        ([], b"a", "1 tokens"),
        ([], b"abc\xff", "3"),
        (["/nonexistent.txt"], b"", "nonexistent.txt"),
        (["--window", "4096"], b"a b c", "2048"),
        (["--stride", "100000"], b"a b c", "--stride"),
    ],
)
def test_errors(twin: Kipp, arguments: list[str], text: bytes, part: str) -> None:
    done = twin("ppl", *arguments, stdin=text)
    assert done.returncode == FAILURE and not done.stdout
    assert part in done.stderr.decode()


def test_progress_only_on_a_terminal(twin: Kipp) -> None:
    assert twin("ppl", stdin=b"one two three four " * 20).stderr == b""
    controller, terminal = pty.openpty()
    process = twin.popen("ppl", "--window", "256", "--stride", "1", stdin=-1, stdout=-1, stderr=terminal)
    os.close(terminal)
    assert process.stdin is not None
    process.stdin.write(b"one two three " * 2000)
    process.stdin.close()
    shown = b""
    while b"perplexity so far" not in shown:
        shown += os.read(controller, 1 << 16)
    process.send_signal(signal.SIGINT)
    while b"interrupted" not in shown:
        shown += os.read(controller, 1 << 16)
    assert b"\r\x1b[Kkipp: interrupted" in shown  # the bar is gone before the message
    assert process.wait(timeout=30) == INTERRUPTED
    os.close(controller)


def test_interrupt(twin: Kipp) -> None:
    controller, terminal = pty.openpty()
    process = twin.popen("ppl", "--window", "256", "--stride", "1", stdin=-1, stdout=-1, stderr=terminal)
    os.close(terminal)
    assert process.stdin is not None
    process.stdin.write(b"one two three " * 2000)
    process.stdin.close()
    assert os.read(controller, 1)  # progress: it is at work
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == INTERRUPTED
    os.close(controller)
    assert process.stdout is not None
    assert process.stdout.read() == b""


@pytest.mark.parametrize("text", [b"one two three", "one 世".encode()[:-1], b""], ids=["whole", "half", "none"])
def test_interrupt_while_the_text_is_read(twin: Kipp, text: bytes) -> None:
    process = twin.popen("ppl", stdin=-1, stdout=-1, stderr=-1, start_new_session=True)
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout, stderr) == (INTERRUPTED, b"", b"")


def test_interrupt_while_a_pipe_has_no_writer(twin: Kipp, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = twin.popen("ppl", fifo, stdout=-1, stderr=-1, start_new_session=True)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout, stderr) == (INTERRUPTED, b"", b"")


def test_an_interrupt_is_noticed_whenever_it_comes(twin: Kipp, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for delay in range(0, 60, 3):  # ms: before, while and after the artifact opens, and while the pipe is waited for
        process = twin.popen("ppl", fifo, stdout=-1, stderr=-1, start_new_session=True)
        time.sleep(delay / 1000)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode in (INTERRUPTED, -signal.SIGINT)  # the latter before there is a handler
