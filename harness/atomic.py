"""Files that are there whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON object; who reads meanwhile sees the old file or the new one."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, path)
