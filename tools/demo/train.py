"""Trains the demo checkpoint on one GPU within a time budget: data generation, training, export, evaluation.

The packed checkpoint in --out is complete after every export, so a crash or a signal late in the run loses little.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tools.demo import model as demo_model
from tools.demo.batches import Pool, validation_batches
from tools.demo.corpus import (
    ROWS,
    SURVEY_SAMPLES,
    TOKENS_PER_BATCH,
    Encoder,
    Vocabulary,
    find_vocabulary,
    load_tokenizer,
    start_workers,
)
from tools.demo.model import Forward, Shape, TiedCrossEntropy, batch_targets
from tools.demo.optimizer import Optimizer, schedule
from tools.demo.snapshot import EMBEDDING, load_stored, pack, to_bf16

START = time.monotonic()
COLUMNS = (
    "step",
    "seconds",
    "tokens",
    "schedule",
    "loss",
    "validation_loss",
    "gradient_norm",
    "tokens_per_second",
    "generated_tokens",
)


def log(text: str) -> None:
    print(f"[{time.monotonic() - START:7.1f} s] {text}", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for the packed checkpoint, the log and the evaluation")
    parser.add_argument("--minutes", type=float, default=8.5, help="for everything, evaluation included")
    parser.add_argument("--evaluation-seconds", type=float, default=45, help="kept back at the end for the evaluation")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--workers",
        type=int,
        default=max(1, min(14, len(os.sched_getaffinity(0)) - 2)),
        help="processes that generate data",
    )
    parser.add_argument(
        "--survey-samples", type=int, default=SURVEY_SAMPLES, help="per worker, to find the used tokens"
    )
    parser.add_argument("--shard-samples", type=int, default=4000)
    parser.add_argument("--first-rows", type=int, default=60000, help="rows to wait for before the first step")
    parser.add_argument("--tokens-per-batch", type=int, default=TOKENS_PER_BATCH)
    parser.add_argument("--max-steps", type=int, default=10**9)
    parser.add_argument("--export-seconds", type=float, default=90)
    parser.add_argument("--matrix-rate", type=float, default=0.02)
    parser.add_argument("--other-rate", type=float, default=0.003)
    parser.add_argument("--prompt-weight", type=float, default=0.1, help="loss weight of tokens that the user wrote")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--init", type=Path, help="folder of a packed checkpoint to continue from")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--probe-compile", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def compiled_functions() -> tuple[Any, Any]:
    return torch.compile(demo_model.attention_inputs, dynamic=False), torch.compile(
        demo_model.block_output, dynamic=False
    )


def probe_compile(tokens: int) -> int:
    """Compiles and runs both functions in a process of its own: fills the compiler's cache, shows that it works."""
    model = demo_model.build(Shape(layers=1), 1000, 0).to("cuda")
    forward = Forward(model, Shape(layers=1), torch.bfloat16, *compiled_functions())
    for _ in range(2):
        ids = torch.randint(1000, (tokens // 64, 64), device="cuda")
        forward(ids).square().mean().backward()
    torch.cuda.synchronize()
    return 0


class Exporter:
    """Packs the weights in a thread of its own; xz releases the interpreter lock."""

    def __init__(self, out: Path, vocabulary: Vocabulary, config: dict[str, Any]) -> None:
        self.out, self.vocabulary, self.config = out, vocabulary, config
        self.thread: threading.Thread | None = None
        self.manifest: dict[str, Any] | None = None

    def tensors(self, model: torch.nn.Module) -> dict[str, np.ndarray]:
        arrays = {name: to_bf16(tensor.detach().float().cpu().numpy()) for name, tensor in model.named_parameters()}
        arrays[EMBEDDING] = arrays[EMBEDDING][:-1]  # without the row that stands for all untrained ones
        return arrays

    def start(self, model: torch.nn.Module, training: dict[str, Any], preset: int = 1) -> None:
        if self.thread is not None and self.thread.is_alive():
            return
        arrays = self.tensors(model)

        def work() -> None:
            self.manifest = pack(self.out, arrays, self.vocabulary.rows, self.config, training, preset)
            total = sum(entry["bytes"] for entry in self.manifest["files"].values())
            log(
                f"exported step {training['steps']}: {total / 1e6:.2f} MB, "
                f"model sha256 {self.manifest['model_sha256'][:16]}…"
            )

        self.thread = threading.Thread(target=work)
        self.thread.start()

    def wait(self) -> None:
        if self.thread is not None:
            self.thread.join()


class Trainer:
    """State of the run. `train` returns when time, steps or a signal end it; `training` describes what was done."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.arguments, self.folder = arguments, folder
        self.device = torch.device(arguments.device)
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self.shape = Shape()
        self.step = self.tokens = 0
        self.seconds = self.validation_loss = 0.0
        self.stop = self.compiled = False
        self.rate_scale = 1.0
        self.probe: subprocess.Popen[bytes] | None = None
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, number: int, _frame: object) -> None:
        log(f"signal {number}: stopping")
        self.stop = True

    def prepare(self) -> None:
        """Vocabulary, workers, model and first data."""
        a = self.arguments
        if self.device.type == "cuda" and not a.no_compile:
            command = [
                sys.executable,
                "-m",
                "tools.demo.train",
                "--probe-compile",
                "--tokens-per-batch",
                str(a.tokens_per_batch),
            ]
            self.probe = subprocess.Popen(command, cwd=Path(__file__).resolve().parents[2])
        stored = load_stored(a.init) if a.init else None
        self.vocabulary = Vocabulary(stored[1]) if stored else find_vocabulary(self.folder, a.workers, a.survey_samples)
        log(f"vocabulary: {len(self.vocabulary.rows)} trained rows")
        np.save(self.folder / ROWS, self.vocabulary.rows)
        self.workers = start_workers(
            "shards", [a.seed * 10_000 + i for i in range(a.workers)], a.shard_samples, self.folder
        )
        self.model = demo_model.build(self.shape, len(self.vocabulary.rows), a.seed).to(self.device)
        if stored:
            self._load(stored[0])
        self.check_forward()
        self.forward = Forward(self.model, self.shape, self.dtype)
        self.optimizer = Optimizer(self.model, a.matrix_rate, a.other_rate, self.dtype)
        self.exporter = Exporter(a.out, self.vocabulary, self.shape.config())
        self.pool = Pool(self.device, a.tokens_per_batch, a.seed)
        encoder = Encoder(load_tokenizer())
        self.validation = validation_batches(
            encoder, self.vocabulary, a.tokens_per_batch, 64 if self.device.type == "cpu" else 3000, 77
        )
        log(f"{len(self.validation)} validation batches")
        while self.pool.num_rows < a.first_rows and not self.stop:
            if not self.pool.load_from(self.folder):
                time.sleep(0.2)
            if all(worker.poll() is not None for worker in self.workers):
                raise RuntimeError("all data workers died: see their tracebacks above")
        log(
            f"first {self.pool.num_rows} rows, {self.pool.num_tokens} tokens; "
            f"{sum(p.numel() for p in self.model.parameters())} parameters"
        )

    def _load(self, tensors: dict[str, np.ndarray]) -> None:
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                values = torch.from_numpy((tensors[name].astype(np.uint32) << 16).view(np.float32))
                (parameter[:-1] if name == EMBEDDING else parameter).copy_(values)

    def check_forward(self) -> None:
        """The training forward pass must be Transformers' own, to FP32 rounding."""
        tokens = torch.randint(len(self.vocabulary.rows) + 1, (4, 48), device=self.device)
        with torch.no_grad():
            expected = self.model.model(input_ids=tokens).last_hidden_state.float().reshape(-1, self.shape.hidden)
            found = Forward(self.model, self.shape, torch.float32)(tokens)
        deviation = ((expected - found).square().sum() / expected.square().sum()).item()
        log(f"forward pass against Transformers: NMSE {deviation:.2e}")
        if not deviation < 1e-4:  # TF32 or not; a wrong formula gives more than 1e-1
            raise RuntimeError("the training forward pass is not the Transformers model")

    def poll_compile(self) -> None:
        """Switches to the compiled functions once the probe has shown that they work; any failure means eager."""
        if self.probe is None or self.probe.poll() is None:
            return
        code, self.probe = self.probe.returncode, None
        if code != 0:
            log(f"compile probe failed with {code}: staying eager")
            return
        try:
            self.forward.inputs, self.forward.output = compiled_functions()
            self.gradients(*self.pool.sample())
            self.optimizer_zero()
            self.compiled = True
            log("compiled functions in use")
        except Exception:
            log("compilation failed, staying eager:\n" + traceback.format_exc())
            self.forward.inputs, self.forward.output = demo_model.attention_inputs, demo_model.block_output

    def optimizer_zero(self) -> None:
        for parameter in self.model.parameters():
            parameter.grad = None

    def loss(self, tokens: torch.Tensor, spans: torch.Tensor, prompt_weight: float) -> torch.Tensor:
        targets, weights = batch_targets(tokens, spans, self.vocabulary.unknown, prompt_weight)
        embedding = self.model.model.embed_tokens.weight[: self.vocabulary.unknown]
        pieces = max(1, tokens.numel() // 12288)
        return TiedCrossEntropy.apply(
            self.forward(tokens), embedding, targets, weights, self.vocabulary.num_unused, self.dtype, pieces
        )

    def gradients(self, tokens: torch.Tensor, spans: torch.Tensor) -> torch.Tensor:
        loss = self.loss(tokens, spans, self.arguments.prompt_weight)
        loss.backward()
        self.model.model.embed_tokens.weight.grad[self.vocabulary.unknown].zero_()
        return loss.detach()

    def validate(self) -> float:
        """Mean loss over the tokens that the model has to write, of held-out dialogues.

        Gradients stay enabled: another gradient mode would make the compiler start again.
        """
        total = count = 0.0
        for tokens, spans in self.validation:
            tokens, spans = tokens.to(self.device), spans.to(self.device)
            written = (spans[:, 1] - spans[:, 0]).sum().item()
            total += self.loss(tokens, spans, 0.0).detach().item() * written
            count += written
        return total / count

    def description(self) -> dict[str, Any]:
        a = self.arguments
        device = torch.cuda.get_device_name() if self.device.type == "cuda" else platform.processor() or "CPU"
        return {
            "steps": self.step,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 1),
            "generated_tokens": self.pool.num_tokens,
            "validation_loss": round(self.validation_loss, 4),
            "tokens_per_batch": a.tokens_per_batch,
            "seed": a.seed,
            "workers": a.workers,
            "survey_samples": a.survey_samples,
            "matrix_rate": a.matrix_rate,
            "other_rate": a.other_rate,
            "prompt_weight": a.prompt_weight,
            "compiled": self.compiled,
            "device": device,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "continued": a.init is not None,
        }

    def train(self, deadline: float) -> None:
        begin = last_export = last_log = time.monotonic()
        last_step, losses = 0, []
        with open(self.arguments.out / "train-log.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            while not self.stop and self.step < self.arguments.max_steps and time.monotonic() < deadline:
                self.poll_compile()
                if self.step % 20 == 0:  # copies to the device wait for it, so seldom and many at once
                    self.pool.load_from(self.folder)
                progress = max((time.monotonic() - begin) / (deadline - begin), self.step / self.arguments.max_steps)
                losses.append(self.gradients(*self.pool.sample()))
                norm = self.optimizer.step(schedule(progress) * self.rate_scale)
                self.step += 1
                self.tokens += self.arguments.tokens_per_batch
                now = time.monotonic()
                self.seconds = now - begin
                if self.step % 50 == 0 or self.step < 10:
                    mean = torch.stack(losses).mean().item()
                    speed = (self.step - last_step) * self.arguments.tokens_per_batch / (time.monotonic() - last_log)
                    last_log, last_step, losses = time.monotonic(), self.step, []
                    if self.step % 500 == 0 or self.step == 1:
                        self.validation_loss = self.validate()
                    row = (
                        self.step,
                        f"{self.seconds:.1f}",
                        self.tokens,
                        f"{schedule(progress):.4f}",
                        f"{mean:.4f}",
                        f"{self.validation_loss:.4f}",
                        f"{norm.item():.3f}",
                        int(speed),
                        self.pool.num_tokens,
                    )
                    writer.writerow(row)
                    if self.step % 250 == 0 or self.step < 10:
                        file.flush()
                        log(" ".join(f"{name}={value}" for name, value in zip(COLUMNS, row, strict=True)))
                    if not np.isfinite(mean):
                        self.recover()
                if now - last_export > self.arguments.export_seconds:
                    last_export = now
                    self.exporter.start(self.model, self.description())
        self.validation_loss = self.validate()

    def recover(self) -> None:
        """After a loss that is not finite: back to the last export, at half the rate."""
        self.exporter.wait()
        if self.exporter.manifest is None:
            raise RuntimeError("the loss is not finite before the first export")
        log("the loss is not finite: back to the last export at half the rate")
        self._load(load_stored(self.arguments.out)[0])
        self.rate_scale *= 0.5
        self.optimizer = Optimizer(self.model, self.arguments.matrix_rate, self.arguments.other_rate, self.dtype)

    def finish(self) -> None:
        """The last export, whatever ended the training."""
        self.exporter.wait()
        self.exporter.start(self.model, self.description(), preset=6)
        self.exporter.wait()
        for worker in self.workers:
            worker.terminate()
        if self.probe is not None:
            self.probe.kill()


def evaluate_result(out: Path, device: str, deadline: float) -> None:
    """Unpacks what was just stored and scores it through Transformers."""
    from tools.demo import evaluate, snapshot

    torch.set_float32_matmul_precision("highest")
    if device == "cuda":
        torch.cuda.empty_cache()
    with tempfile.TemporaryDirectory() as folder:
        snapshot.unpack(out, Path(folder))
        log("unpacked; evaluating")
        report = evaluate.run_transformers(Path(folder), evaluate.load_prompts(evaluate.PROMPTS), device, deadline)
        evaluate.write_report(out / "evaluation.json", report)
    log(f"evaluation: {report['correct']} of {report['total']} right")


def main() -> int:
    arguments = parse_arguments()
    if arguments.probe_compile:
        return probe_compile(arguments.tokens_per_batch)
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")  # TF32 for the output head; everything else is BF16
    log(
        f"python {platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}, "
        f"{os.cpu_count()} CPUs"
    )
    end = START + arguments.minutes * 60
    folder = Path(tempfile.mkdtemp(prefix="kipp-demo-"))
    trainer, failed = Trainer(arguments, folder), False
    try:
        trainer.prepare()
        trainer.train(end - arguments.evaluation_seconds)
    except Exception:
        failed = True
        log("training failed:\n" + traceback.format_exc())
    try:
        trainer.finish()
        log(f"done: {trainer.description()}")
        evaluate_result(arguments.out, arguments.device, end)
    except Exception:
        failed = True
        log("export or evaluation failed:\n" + traceback.format_exc())
    shutil.rmtree(folder, ignore_errors=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
