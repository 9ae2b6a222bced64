"""Reads Python source for habits that no linter of ours knows. Every check returns sentences; none means clean."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_ENVIRONMENT = {"environ", "environb", "getenv", "getenvb"}
_NEEDS_REASON = {
    "pytest.skip",
    "pytest.xfail",
    "pytest.importorskip",
    "pytest.mark.skip",
    "pytest.mark.skipif",
    "pytest.mark.xfail",
}
# For these the first positional argument is the reason itself.
_REASON_FIRST = {"pytest.skip", "pytest.xfail", "pytest.mark.skip"}
_MACHINE_PATH = re.compile(r"(?<![\w.~-])/(work|root|opt)/")


def dotted(node: ast.AST) -> str:
    """``a.b.c`` for a chain of attributes on a name, otherwise an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def imported_modules(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every absolute module an ``import`` statement or ``import_module`` call names, with its line.

    ``from a import b`` yields ``a`` and ``a.b``, because b may be a module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and dotted(node.func).split(".")[-1] in {"import_module", "__import__"}:
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value, node.lineno


def imports_of(tree: ast.AST, *forbidden: str) -> list[str]:
    """Imports of the forbidden modules or of anything inside them."""
    return sorted(
        {
            f"line {line} imports {name}"
            for name, line in imported_modules(tree)
            if any(name == bad or name.startswith(bad + ".") for bad in forbidden)
        }
    )


def mentions(tree: ast.AST, *chains: str) -> list[str]:
    """Uses of dotted names, such as ``torch.nn``, without an import statement of their own."""
    return [
        f"line {node.lineno} uses {dotted(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and dotted(node) in chains
    ]


def environment_reads(tree: ast.AST) -> list[str]:
    """Uses of the process environment through the module ``os``, however it was imported."""
    names = {"os"} | {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "os" and alias.asname
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _ENVIRONMENT and dotted(node.value) in names:
            found.append(f"line {node.lineno} reads {dotted(node)}")
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            taken = sorted(_ENVIRONMENT & {alias.name for alias in node.names})
            found += [f"line {node.lineno} imports os.{name}" for name in taken]
    return found


def _has_reason(call: ast.Call, name: str) -> bool:
    given = [k.value for k in call.keywords if k.arg in {"reason", "msg"}]
    if name in _REASON_FIRST:
        given += call.args[:1]
    return any(not isinstance(value, ast.Constant) or bool(value.value) for value in given)


def skips_without_reason(tree: ast.AST) -> list[str]:
    """Skips and expected failures of pytest that do not say why."""
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := dotted(node)) in _NEEDS_REASON:
            call = called.get(id(node))
            if call is None or not _has_reason(call, name):
                found.append(f"line {node.lineno}: {name} without a reason")
        elif isinstance(node, ast.ImportFrom) and node.module == "pytest":
            hidden = sorted({alias.name for alias in node.names} & {"skip", "xfail", "importorskip", "mark"})
            found += [f"line {node.lineno}: write pytest.{name}, so that its reason can be checked" for name in hidden]
    return found


def machine_paths(content: str) -> list[str]:
    """Lines that name an absolute folder which exists on one machine only."""
    return [
        f"line {number}: {line.strip()[:80]}"
        for number, line in enumerate(content.splitlines(), 1)
        if _MACHINE_PATH.search(line)
    ]
