"""Line coverage of every reader of bytes from outside, from `llvm-cov export -format=lcov`: a table, and exit status 1
where a parser is below the bound or a line that no test runs has no reason here.

With --write the tables go into docs/coverage.md. `make coverage` builds, runs the tests and calls this.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):  # run as a script: the package is one folder up
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tools.atomic_file import write_file
from tools.command import run_command
from tools.errors import ToolError
from tools.marked_block import replace_block

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "coverage.md"
BEGIN = "<!-- begin: made by tools/parser_coverage.py -->"
END = "<!-- end -->"
BOUND = 95.0  # per cent of a parser's lines

# A new reader of bytes from outside is added here (tests/python/test_parser_coverage.py looks for some that are not).
PARSERS = {
    "artifact": (
        "src/base/mapped_file.cc", "src/gguf/cursor.h", "src/gguf/parser.cc", "src/gguf/metadata_reader.cc",
        "src/gguf/metadata_reader.h", "src/gguf/format.cc", "src/gguf/bind_metadata.cc", "src/gguf/bind_tensors.cc",
        "src/gguf/bind_tokenizer.cc", "src/gguf/tensor_layout.cc", "src/gguf/model_file.cc"),
    "JSON": ("src/base/json_parse.cc", "src/base/json.cc", "src/base/json_write.cc"),
    "JSON Lines": ("src/cli/input.cc", "src/cli/jsonl.cc", "src/cli/fields.cc", "src/cli/base64.cc"),
    "requests": ("src/cli/request.cc", "src/cli/chat_flags.cc", "src/chat/request.cc", "src/chat/render.cc",
                 "src/chat/prompt.cc"),
    "JSON of HTTP requests": (
        "src/server/openai/schema.h", "src/server/openai/schema.cc", "src/server/openai/schema_check.cc",
        "src/server/openai/request_steps.cc", "src/server/openai/generation_fields.cc",
        "src/server/openai/chat_fields.cc", "src/server/openai/completion_request.cc",
        "src/server/openai/chat_completion_request.cc", "src/server/openai/text_requests.cc"),
    "chat commands": ("src/cli/chat_commands.cc",),
    "an assistant's output": ("src/chat/output_parser.cc", "src/chat/tool_call_parser.cc",
                              "src/engine/stop_matcher.cc"),
    "tokenizer": (
        "src/tokenizer/tokenizer.cc", "src/tokenizer/utf8.cc", "src/tokenizer/nfc.cc",
        "src/tokenizer/pre_tokenizer.cc", "src/tokenizer/char_class.cc", "src/tokenizer/added_tokens.cc",
        "src/tokenizer/bpe.cc", "src/tokenizer/rank_queue.cc", "src/tokenizer/vocabulary.cc",
        "src/tokenizer/token_index.cc", "src/tokenizer/merge_table.cc", "src/tokenizer/byte_alphabet.cc"),
    "detokenizer": ("src/tokenizer/stream_decoder.cc",),
    "HTTP requests": ("src/server/http/request_head.cc", "src/server/http/request_reader.cc",
                      "src/server/http/api_keys.cc", "src/server/http/cors.cc"),
    "test vectors": ("src/gates/safetensors.cc", "src/gates/vectors.cc"),
}

# Why no test runs a line: by file, the first line of what is left out. `}` alone needs none: see Gap.
_NO_ENUMERATOR = "the switch has a case for every enumerator; the compiler wants a value all the same"
# Runs in some measurements and not in others, so that its reason is in use or not.
TIMED = "an interrupt while the prompt is evaluated: when a test's signal arrives is a matter of time"
REASONS = {
    "src/base/json.cc": {
        "return -kFar;": "a literal of zeros alone is in the range of a double, whatever its exponent",
        'return "nothing";': _NO_ENUMERATOR},
    "src/base/json_parse.cc": {
        "bool operator==(const CountingIterator& other) const { return at_ == other.at_; }":
            "an iterator has it; nlohmann's reader asks for != alone",
        "bool binary(std::vector<uint8_t>&) { return false; }  // not in text":
            "nlohmann calls it for CBOR and the like, not for text"},
    "src/base/mapped_file.cc": {
        'return make_error(ErrorCode::kIo, fmt::format("{}: cannot stat: {}", path.string(), reason()));':
            "fstat of a file that was just opened fails on a broken file system alone"},
    "src/chat/render.cc": {'return "user";': _NO_ENUMERATOR},
    "src/cli/request.cc": {"return answer;": TIMED},
    "src/gguf/bind_metadata.cc": {'return "";': "every scheme is in the table"},
    "src/gguf/format.cc": {
        "case ValueType::kString:": "describe() answers for texts and arrays itself",
        "return {};": "describe() answers for texts and arrays itself"},
    "src/gguf/tensor_layout.cc": {
        "return WeightType::kBf16;": _NO_ENUMERATOR, "return GgmlType::kBf16;": _NO_ENUMERATOR,
        "return 0;": _NO_ENUMERATOR},
    "src/server/openai/schema.cc": {
        'case Type::Kind::kAny: return "a value";': "a required field that takes any value; there is none",
        "return {};": _NO_ENUMERATOR},
    "src/server/openai/schema_check.cc": {
        "case Kind::kOneOf: return std::ranges::any_of(type.parts, [&](const Type& part) { "
        "return has_kind(value, part); });":
            "alternatives inside alternatives; no field has them",
        "return false;": _NO_ENUMERATOR, "return {};": _NO_ENUMERATOR},
    "src/server/http/request_reader.cc": {"default: return 0;": "a connection feeds no reader that has finished"},
}


@dataclass(frozen=True)
class Gap:
    """Neighbouring lines that no test ran."""

    path: str
    first_line: int
    code: tuple[str, ...]

    @property
    def reason(self) -> str | None:
        """A closing brace alone is the end of a block that has returned: there is nothing to run."""
        if set(self.code) == {"}"}:
            return "the end of a block that has returned"
        return REASONS.get(self.path, {}).get(self.code[0])


Counts = dict[str, dict[int, int]]  # how often each line ran, by the file's path in the repository


def read_counts(export: str, root: Path) -> Counts:
    """Lines of lcov's format: SF:<file>, and for each of its lines with code DA:<line>,<times>."""
    counts: Counts = {}
    lines: dict[int, int] = {}
    for record in export.splitlines():
        key, _, value = record.partition(":")
        if key == "SF":
            path = Path(value)
            inside = path.is_relative_to(root)
            lines = counts.setdefault(path.relative_to(root).as_posix(), {}) if inside else {}
        elif key == "DA":
            number, times = (int(text) for text in value.split(",")[:2])
            lines[number] = max(times, lines.get(number, 0))
    return counts


def gaps_of(path: str, counts: dict[int, int], root: Path) -> list[Gap]:
    """Lines without code between two that did not run belong to the gap."""
    text = (root / path).read_text(encoding="utf-8").splitlines()
    gaps: list[list[int]] = []
    before_ran = True
    for number in sorted(counts):
        if counts[number] == 0:
            if before_ran:
                gaps.append([])
            gaps[-1].append(number)
        before_ran = counts[number] > 0
    return [Gap(path, lines[0], tuple(text[number - 1].strip() for number in lines)) for lines in gaps]


def percent(counts: Iterable[int]) -> float:
    ran = [count > 0 for count in counts]
    return 100.0 * sum(ran) / len(ran)


def shown(share: float) -> str:
    """Rounded down: 100 means all."""
    return f"{int(share * 10) / 10:.1f}"


def parser_table(counts: Counts) -> tuple[list[str], list[str]]:
    """Markdown rows, one for each parser, and what is wrong with them."""
    rows = ["| parser | lines | covered, % | files |", "|---|---:|---:|---|"]
    problems = []
    for name, paths in PARSERS.items():
        missing = [path for path in paths if not counts.get(path)]
        if missing:
            raise ToolError(f"{name}: the report lacks {', '.join(missing)}; does a program that was measured link it?")
        lines = [count for path in paths for count in counts[path].values()]
        files = ", ".join(f"`{path}` {shown(percent(counts[path].values()))}" for path in paths)
        rows.append(f"| {name} | {len(lines)} | {shown(percent(lines))} | {files} |")
        if percent(lines) < BOUND:
            problems.append(f"{name}: {shown(percent(lines))} % of its lines ran, expected at least {BOUND:.0f} %")
    return rows, problems


def gap_table(gaps: list[Gap]) -> tuple[list[str], list[str]]:
    """Markdown rows, one for each gap, and those that nobody explained."""
    rows = ["| file | what did not run | why |", "|---|---|---|"]
    problems = []
    for gap in gaps:
        more = f" and {len(gap.code) - 1} more" if len(gap.code) > 1 else ""
        code = gap.code[0].replace("|", "\\|")
        rows.append(f"| `{gap.path}` | `{code}`{more} | {gap.reason or '?'} |")
        if gap.reason is None:
            problems.append(f"{gap.path}:{gap.first_line}: {gap.code[0]}{more}: did not run; add a test, or say in "
                            "tools/parser_coverage.py why there is none")
    used = {(gap.path, gap.code[0]) for gap in gaps}
    for path, reasons in REASONS.items():
        problems += [f"{path}: {line}: runs or is gone; remove its reason from tools/parser_coverage.py"
                     for line, reason in reasons.items() if (path, line) not in used and reason is not TIMED]
    return rows, problems


def report(counts: Counts, root: Path) -> tuple[str, list[str]]:
    """The document's tables and what is wrong."""
    rows, problems = parser_table(counts)
    gaps = [gap for paths in PARSERS.values() for path in paths for gap in gaps_of(path, counts[path], root)]
    gap_rows, gap_problems = gap_table(gaps)
    return "\n".join([*rows, "", *gap_rows]), problems + gap_problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("export", type=Path, metavar="LCOV", help="output of llvm-cov export -format=lcov")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {DOCUMENT.relative_to(ROOT)}")
    arguments = parser.parse_args()
    tables, problems = report(read_counts(arguments.export.read_text(encoding="utf-8"), ROOT), ROOT)
    print(tables)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if arguments.write and not problems:
        text = DOCUMENT.read_text(encoding="utf-8")
        write_file(DOCUMENT, replace_block(text, BEGIN, END, tables).encode())
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(run_command(main))
