"""The rules of the house style that a machine can check: file and function size, include order, self-contained text.

Run without arguments from anywhere; prints one line a finding and exits 1 if there is any.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_KERNEL_LINES = 120
CODE_SUFFIXES = {".cc", ".h", ".cu", ".cuh", ".metal", ".mm", ".py", ".sh"}
CPP_SUFFIXES = {".cc", ".h", ".cu", ".cuh", ".metal", ".mm"}

# Include order of src/: a folder may include itself and what stands here. Everyone may include base and include/kipp.
ALLOWED_INCLUDES: dict[str, set[str]] = {
    "base": set(),
    "model": set(),
    "gguf": {"model"},
    "tokenizer": set(),
    "kv": set(),
    "sampling": set(),
    "chat": {"tokenizer"},
    "scheduler": {"kv", "sampling", "model"},
    "backend": {"gguf", "model", "tokenizer", "kv", "sampling"},
    "engine": {"gguf", "model", "tokenizer", "kv", "sampling", "chat", "scheduler", "backend"},
}
TOP_LAYERS = ["gates", "server", "cli"]  # each may include every layer below, and those before it in this list

MADE_BY = re.compile(r"(?://|#) Made by (tools/\w+\.py)\b")
POINTER_ONLY = re.compile(r"// See \S+\.h\.?\n(?!//)")
PRIVATE_NOTES = re.compile(r"\bDESIGN\b|\b(?:STYLE|FACTS|NOTES|PLAN)\.md\b")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def tracked_files() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    listing.check_returncode()
    return [ROOT / line for line in listing.stdout.splitlines() if (ROOT / line).is_file()]


def is_generated(text: str) -> bool:
    """A file whose first line names the tool in this repository that made it; a file's name proves nothing."""
    maker = MADE_BY.match(text)
    return maker is not None and (ROOT / maker[1]).is_file()


def check_file_size(path: Path, text: str) -> Iterator[str]:
    lines = text.count("\n")
    if path.suffix in CODE_SUFFIXES and not is_generated(text) and lines > MAX_FILE_LINES:
        yield f"{path.relative_to(ROOT)}: {lines} lines; at most {MAX_FILE_LINES}"


def blank_out(text: str) -> str:
    """C++ source with comments, strings and preprocessor lines blanked, line structure kept."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"([^\s()\\]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
        r"|^[ \t]*#(?:\\\n|[^\n])*",
        re.DOTALL | re.MULTILINE,
    )
    return pattern.sub(lambda match: "\n" * match.group(0).count("\n"), text)


SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b[^;(){}=]*$")
FUNCTION = re.compile(r"(\)|\bconst|\bnoexcept|\boverride|\bmutable)\s*(->\s*[^;{}]+)?$|\)\s*:\s*[^;]*(\)|\})\s*$")


def cpp_functions(text: str) -> Iterator[tuple[int, int]]:
    """(first line, number of lines) of every function body that is not nested in another.

    A brace without a space before it is an initialiser (`b_{a}`): the formatter guarantees it.
    """
    code = blank_out(text)
    scopes: list[str] = []  # "function", "scope" or "initialiser"
    start = 0
    segment_start = 0
    for index, char in enumerate(code):
        if char == "{":
            head = code[segment_start:index].strip()
            if index > 0 and not code[index - 1].isspace():
                scopes.append("initialiser")
                continue
            if "function" not in scopes and not SCOPE.search(head) and FUNCTION.search(head):
                start = index
                scopes.append("function")
            else:
                scopes.append("scope")
        elif char == "}" and scopes:
            kind = scopes.pop()
            if kind == "initialiser":
                continue
            if kind == "function":
                yield code.count("\n", 0, start) + 1, code.count("\n", start, index) + 1
        if char in "{};":
            segment_start = index + 1


def check_cpp_functions(path: Path, text: str) -> Iterator[str]:
    limit = MAX_KERNEL_LINES if path.suffix in {".cu", ".metal"} else MAX_FUNCTION_LINES
    for line, lines in cpp_functions(text):
        if lines > limit:
            yield f"{path.relative_to(ROOT)}:{line}: a function of {lines} lines; at most {limit}"


def check_python_functions(path: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield f"{where}: {node.name} has {lines} lines; at most {MAX_FUNCTION_LINES}"


def layer_error(layer: str, target: str) -> bool:
    if target == layer or target in {"base", "kipp"}:
        return False
    if layer in TOP_LAYERS:
        return target in TOP_LAYERS[TOP_LAYERS.index(layer) + 1 :]
    return target not in ALLOWED_INCLUDES.get(layer, set())


def check_includes(path: Path, text: str) -> Iterator[str]:
    relative = path.relative_to(ROOT)
    if relative.parts[0] == "src" and len(relative.parts) > 2:
        layer = relative.parts[1]
    elif relative.parts[0] == "include":
        layer = "kipp"
    else:
        return
    for number, line in enumerate(text.splitlines(), start=1):
        match = INCLUDE.match(line)
        if not match or "/" not in match.group(1):
            continue
        target = match.group(1).split("/")[0]
        forbidden = target != "kipp" if layer == "kipp" else layer_error(layer, target)
        if forbidden:
            yield f"{relative}:{number}: {layer} must not include {match.group(1)}"


def check_opening_comment(path: Path, text: str) -> Iterator[str]:
    is_pointer = (ROOT / "src") in path.parents and POINTER_ONLY.match(text)
    if path.suffix in CPP_SUFFIXES and (not text.lstrip().startswith(("//", "/*")) or is_pointer):
        yield f"{path.relative_to(ROOT)}:1: a file opens with one to three lines that say what it does"
    if path.suffix == ".py" and path.name != "__init__.py" and text.strip() and not ast.get_docstring(ast.parse(text)):
        yield f"{path.relative_to(ROOT)}:1: a file opens with a docstring that says what it does"


def check_references(path: Path, text: str) -> Iterator[str]:
    """Only what is in the repository can be cited."""
    for number, line in enumerate(text.splitlines(), start=1):
        match = PRIVATE_NOTES.search(line)
        if match and path not in {Path(__file__), Path(__file__).with_name("test_check_style.py")}:
            yield f"{path.relative_to(ROOT)}:{number}: cites {match[0]}, which is not in the repository"


def findings(path: Path) -> Iterator[str]:
    if path.suffix not in CODE_SUFFIXES | {".md"}:
        return
    text = path.read_text(encoding="utf-8")
    yield from check_references(path, text)
    if path.suffix == ".md":
        return
    yield from check_file_size(path, text)
    yield from check_opening_comment(path, text)
    if path.suffix in CPP_SUFFIXES:
        if not is_generated(text):
            yield from check_cpp_functions(path, text)
        yield from check_includes(path, text)
    if path.suffix == ".py":
        yield from check_python_functions(path, text)


def main() -> int:
    problems = [problem for path in tracked_files() for problem in findings(path)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
