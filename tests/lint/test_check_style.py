"""The style lint must be able to fail: each rule against a text that breaks it and one that does not."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("check_style", Path(__file__).with_name("check_style.py"))
assert SPEC and SPEC.loader
check_style = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check_style)

ROOT = check_style.ROOT


def long_function(lines: int) -> str:
    body = "\n".join(f"  x += {i};" for i in range(lines - 2))
    return f"// A file.\nnamespace a {{\nint f(int x) {{\n{body}\n}}\n}}  // namespace a\n"


def test_function_size() -> None:
    path = ROOT / "src/base/x.cc"
    assert not list(check_style.check_cpp_functions(path, long_function(60)))
    assert list(check_style.check_cpp_functions(path, long_function(61)))


@pytest.mark.parametrize(
    "head",
    [
        "void C::f() const {",
        "auto f() -> int {",
        "C::C(int a) : a_(a), b_{a} {",
        "template <typename T>\nT f(T x) noexcept {",
    ],
)
def test_function_heads_are_found(head: str) -> None:
    text = head + "\n" * 70 + "}\n"
    assert list(check_style.check_cpp_functions(ROOT / "src/base/x.cc", text))


def test_braces_in_strings_do_not_count() -> None:
    text = 'int f() {\n  g("{{{", \'{\');  // {\n}\n' + long_function(61)
    assert len(list(check_style.check_cpp_functions(ROOT / "src/base/x.cc", text))) == 1


def test_file_size() -> None:
    path = ROOT / "src/base/x.cc"
    assert not list(check_style.check_file_size(path, "\n" * 500))
    assert list(check_style.check_file_size(path, "\n" * 501))


@pytest.mark.parametrize(
    ("file", "include", "allowed"),
    [
        ("src/base/a.cc", "base/json.h", True),
        ("src/base/a.cc", "gguf/model_file.h", False),
        ("src/kv/a.cc", "backend/backend.h", False),
        ("src/chat/a.cc", "tokenizer/a.h", True),
        ("src/backend/oracle/a.cc", "engine/a.h", False),
        ("src/engine/a.cc", "backend/backend.h", True),
        ("src/cli/a.cc", "engine/a.h", True),
        ("src/gates/a.cc", "cli/a.h", False),
        ("src/server/a.cc", "cli/a.h", False),
        ("include/kipp/a.h", "base/json.h", False),
        ("include/kipp/a.h", "kipp/error.h", True),
    ],
)
def test_include_order(file: str, include: str, allowed: bool) -> None:
    found = list(check_style.check_includes(ROOT / file, f'// A file.\n#include "{include}"\n'))
    assert bool(found) != allowed


def test_only_the_first_line_makes_a_file_generated() -> None:
    made = "// Made by tools/make_unicode_tables.py from data/unicode; do not edit.\n" + "\n" * 501
    for name in ("src/kv/block_tables.cc", "src/tokenizer/unicode_tables.cc", "src/base/generated.cc"):
        assert list(check_style.check_file_size(ROOT / name, "// Tables.\n" + "\n" * 501))
        assert not list(check_style.check_file_size(ROOT / name, made))
    assert not check_style.is_generated("// Made by tools/no_such_tool.py\n")
    assert not check_style.is_generated("// What.\n// Made by tools/make_unicode_tables.py\n")
    assert check_style.is_generated((ROOT / "src/tokenizer/unicode_tables.cc").read_text(encoding="utf-8"))


def test_only_what_is_in_the_repository_is_cited() -> None:
    path = ROOT / "src/x.cc"
    assert list(check_style.check_references(path, "// A file.\n// The bound is DESIGN's.\n"))
    assert list(check_style.check_references(path, "See STYLE.md.\n"))
    assert not list(check_style.check_references(path, "// designed; see docs/numerics.md\n"))


def test_python_function_size() -> None:
    body = "\n".join(f"    x = {i}" for i in range(60))
    assert list(check_style.check_python_functions(ROOT / "tools/x.py", f"def f():\n{body}\n"))
    assert not list(check_style.check_python_functions(ROOT / "tools/x.py", "def f():\n    pass\n"))


def test_opening_comment() -> None:
    assert list(check_style.check_opening_comment(ROOT / "src/x.cc", "int x;\n"))
    assert list(check_style.check_opening_comment(ROOT / "src/x.cc", "// See x.h.\nint x;\n"))
    assert list(check_style.check_opening_comment(ROOT / "tools/x.py", "x = 1\n"))
    assert not list(check_style.check_opening_comment(ROOT / "src/x.cc", "// What.\nint x;\n"))
