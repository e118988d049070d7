"""Every code that a program may meet is in the reference: what is published is described."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
CODE = re.compile(r"[a-z]+(-[a-z]+)+|ready|bridge|usage|failed|refused|conflict|internal")
MAKERS = {"Reason", "Notice", "Refusal", "Finding", "warn", "_remove"}
"""What takes a code as its first argument."""
TABLES = {"_HINTS", "_CODES"}
"""Tables from others' errors to our codes."""


def texts(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def codes_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (text for word in node.keywords if word.arg == "code" for text in texts(word.value))
            maker = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if maker in MAKERS and node.args and isinstance(node.args[0], ast.Constant):
                yield from texts(node.args[0])
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {getattr(target, "id", "") for target in targets}
            if "code" in names:
                yield from texts(node.value)
            elif names & TABLES:
                yield from (text for text in texts(node.value) if "-" in text)


def test_every_code_in_the_sources_is_in_the_reference() -> None:
    page = (CHECKOUT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    described = set(re.findall(r"`([a-z-]+)`", page))
    found = {
        code
        for folder in ("vgpumgr", "api")
        for source in (CHECKOUT / folder).rglob("*.py")
        for code in codes_in(ast.parse(source.read_text(encoding="utf-8")))
        if CODE.fullmatch(code)
    }
    assert {"store-full", "vfio-ids", "no-pci-functions", "nvml-in-use", "other-gpu", "port-in-use"} <= found
    assert sorted(found - described) == []
