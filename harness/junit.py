"""JUnit XML as a value and as a file. Imports no torch."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

# XML 1.0 cannot hold these at all, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, kw_only=True)
class JUnitCase:
    """One `<testcase>`; message and text belong to the failure, error or skip, output to `<system-out>`."""

    classname: str
    name: str
    seconds: float
    result: Literal["passed", "failure", "error", "skipped"]
    type: str = ""
    message: str = ""
    text: str = ""
    output: str = ""


def write_junit(
    path: Path, *, name: str, timestamp: str, properties: Mapping[str, str], cases: Sequence[JUnitCase]
) -> None:
    """Write one `<testsuite>` with its properties and cases; the file appears whole or not at all."""
    count = {result: sum(case.result == result for case in cases) for result in ("failure", "error", "skipped")}
    totals = {
        "tests": str(len(cases)),
        "failures": str(count["failure"]),
        "errors": str(count["error"]),
        "skipped": str(count["skipped"]),
        "time": f"{sum(case.seconds for case in cases):.3f}",
    }
    root = ET.Element("testsuites", totals)
    suite = ET.SubElement(root, "testsuite", {"name": name, "timestamp": timestamp, **totals})
    listed = ET.SubElement(suite, "properties")
    for key, value in properties.items():
        ET.SubElement(listed, "property", {"name": _clean(key), "value": _clean(value)})
    for case in cases:
        _append(suite, case)
    ET.indent(root)
    partial = path.with_name(path.name + ".partial")
    ET.ElementTree(root).write(partial, encoding="utf-8", xml_declaration=True)
    os.replace(partial, path)


def _append(suite: ET.Element, case: JUnitCase) -> None:
    attributes = {"classname": _clean(case.classname), "name": _clean(case.name), "time": f"{case.seconds:.3f}"}
    element = ET.SubElement(suite, "testcase", attributes)
    if case.result != "passed":
        detail = ET.SubElement(element, case.result, {"type": _clean(case.type), "message": _clean(case.message)})
        detail.text = _clean(case.text)
    if case.output:
        ET.SubElement(element, "system-out").text = _clean(case.output)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
