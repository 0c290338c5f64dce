"""Scores a model on the held-out prompts, through Transformers or through the kipp binary, always greedily."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.atomic_file import write_file
from tools.command import run_command
from tools.demo.chat import render_prompt
from tools.demo.checks import is_right, split_thinking
from tools.demo.heldout import PROMPTS
from tools.demo.snapshot import sha256
from tools.gguf_reader import GgufFile

STOP_TOKENS = (151645, 151643)


def load_prompts(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def score(prompts: list[dict[str, Any]], texts: list[str | None], how: dict[str, Any]) -> dict[str, Any]:
    """All outputs with their verdicts, and the counts per skill, mode and split. A text of None was not generated."""
    outputs, skills = [], {}
    for prompt, text in zip(prompts, texts, strict=True):
        if text is None:
            continue
        thinking = prompt["enable_thinking"]
        _, answer = split_thinking(text, thinking)
        right = is_right(prompt["check"], answer)
        outputs.append({"id": prompt["id"], "right": right, "text": text})
        counts = skills.setdefault(prompt["skill"], {})
        for key in (f"thinking {'on' if thinking else 'off'}", prompt["split"]):
            entry = counts.setdefault(key, [0, 0])
            entry[0] += right
            entry[1] += 1
    correct = sum(output["right"] for output in outputs)
    return {
        "how": how,
        "correct": correct,
        "total": len(outputs),
        "skipped": len(prompts) - len(outputs),
        "skills": skills,
        "outputs": outputs,
    }


def run_transformers(
    snapshot: Path, prompts: list[dict[str, Any]], device: str, deadline: float | None = None, batch: int = 256
) -> dict[str, Any]:
    """Batches padded on the left, FP32 weights and arithmetic."""
    import torch
    import transformers
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(snapshot / "tokenizer.json"))
    model = transformers.AutoModelForCausalLM.from_pretrained(snapshot, dtype=torch.float32).to(device).eval()
    ids = [tokenizer.encode(render_prompt(p["messages"], p.get("tools"), p["enable_thinking"])).ids for p in prompts]
    # A batch ends with its longest answer, and answers of one skill and mode are about equally long.
    order = sorted(range(len(prompts)), key=lambda i: (prompts[i]["enable_thinking"], prompts[i]["skill"], len(ids[i])))
    texts: list[str | None] = [None] * len(prompts)
    for start in range(0, len(order), batch):
        if deadline is not None and time.monotonic() > deadline - 12:
            break
        chosen = order[start : start + batch]
        width = max(len(ids[i]) for i in chosen)
        tokens = torch.tensor([[STOP_TOKENS[1]] * (width - len(ids[i])) + ids[i] for i in chosen], device=device)
        mask = torch.tensor([[0] * (width - len(ids[i])) + [1] * len(ids[i]) for i in chosen], device=device)
        with torch.inference_mode():
            made = model.generate(
                input_ids=tokens,
                attention_mask=mask,
                do_sample=False,
                max_new_tokens=max(prompts[i]["decode"] for i in chosen),
                temperature=None,
                top_k=None,
                top_p=None,
                eos_token_id=list(STOP_TOKENS),
                pad_token_id=STOP_TOKENS[1],
            )
        for i, row in zip(chosen, made[:, width:].tolist(), strict=True):
            end = next((n for n, token in enumerate(row) if token in STOP_TOKENS), len(row))
            texts[i] = tokenizer.decode(row[:end], skip_special_tokens=False)
    how = {
        "engine": f"transformers {transformers.__version__}",
        "torch": torch.__version__,
        "device": device,
        "dtype": "float32",
        "batch": batch,
        "revision": sha256((snapshot / "model.safetensors").read_bytes())[:40],
    }
    return score(prompts, texts, how)


def request_lines(prompts: list[dict[str, Any]]) -> str:
    """One JSON line per prompt, as `kipp run --jsonl` reads them."""
    fields = ("messages", "tools", "enable_thinking", "decode", "temperature")
    return "".join(json.dumps({key: prompt[key] for key in fields if key in prompt}) + "\n" for prompt in prompts)


def reply_texts(output: str, count: int) -> list[str]:
    replies = [json.loads(line) for line in output.splitlines()]
    errors = [reply["error"] for reply in replies if "error" in reply]
    if errors:
        raise RuntimeError(f"{len(errors)} replies are errors, the first: {errors[0]}")
    if len(replies) != count:
        raise RuntimeError(f"{count} prompts gave {len(replies)} replies")
    return [reply["text"] for reply in replies]


def artifact_revision(command: list[str]) -> str:
    """The revision that the artifact of `--model FILE` was made from."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-m", "--model", type=Path, required=True)
    with GgufFile(parser.parse_known_args(command[1:])[0].model) as artifact:
        return str(artifact.metadata["kipp.source.revision"])


def run_kipp(command: list[str], prompts: list[dict[str, Any]], processes: int = 1) -> dict[str, Any]:
    """One JSON line per prompt in and out; process k of n gets the prompts k, k + n, k + 2n, …"""

    def run(part: list[dict[str, Any]]) -> list[str]:
        result = subprocess.run(
            command, input=request_lines(part), stdout=subprocess.PIPE, text=True, encoding="utf-8", check=False
        )
        return reply_texts(result.stdout, len(part))

    revision = artifact_revision(command)
    texts: list[str | None] = [None] * len(prompts)
    with ThreadPoolExecutor(processes) as threads:
        parts = threads.map(run, [prompts[index::processes] for index in range(processes)])
        for index, part in enumerate(parts):
            texts[index::processes] = part
    return score(prompts, texts, {"engine": "kipp", "command": command[1:], "revision": revision})


def write_report(path: Path, report: dict[str, Any]) -> None:
    """One line per output and per skill: small, and readable in a diff."""

    def block(items: list[str]) -> str:
        return ",\n".join("  " + item for item in items)

    def dump(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    head = [f" {dump(key)}: {dump(value)}" for key, value in report.items() if key not in ("skills", "outputs")]
    skills = block([f"{dump(skill)}: {dump(counts)}" for skill, counts in report["skills"].items()])
    outputs = block([dump(output) for output in report["outputs"]])
    lines = [*head, f' "skills": {{\n{skills}\n }}', f' "outputs": [\n{outputs}\n ]']
    write_file(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def print_table(report: dict[str, Any]) -> None:
    columns = ("thinking on", "thinking off", "entity", "template")
    print(f"{'skill':24}" + "".join(f"{column:>14}" for column in columns))
    for skill, counts in report["skills"].items():
        cells = (f"{counts[column][0]}/{counts[column][1]}" if column in counts else "-" for column in columns)
        print(f"{skill:24}" + "".join(f"{cell:>14}" for cell in cells))
    print(f"{report['correct']} of {report['total']} right, {report['skipped']} skipped")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--limit", type=int, help="only the first N prompts")
    parser.add_argument("--snapshot", type=Path, help="Hugging Face folder to run through Transformers")
    parser.add_argument("--device", default="cpu", help="of Transformers")
    parser.add_argument("--batch", type=int, default=18, help="prompts at once through Transformers")
    parser.add_argument("--processes", type=int, default=1, help="of kipp, side by side")
    parser.add_argument(
        "--kipp",
        nargs=argparse.REMAINDER,
        help="command that reads and writes JSON lines, e.g. build/release/bin/kipp run --model FILE --jsonl",
    )
    parser.add_argument("--output", type=Path, help="JSON report")
    arguments = parser.parse_args()
    prompts = load_prompts(arguments.prompts)[: arguments.limit]
    if bool(arguments.snapshot) == bool(arguments.kipp):
        parser.error("give either --snapshot or --kipp")
    if arguments.output and arguments.output.exists() and arguments.output.samefile(arguments.prompts):
        parser.error("--output would replace the prompts")
    report = (
        run_transformers(arguments.snapshot, prompts, arguments.device, batch=arguments.batch)
        if arguments.snapshot
        else run_kipp(arguments.kipp, prompts, arguments.processes)
    )
    print_table(report)
    if arguments.output:
        write_report(arguments.output, report)
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
