"""Folders that Hugging Face `datasets` saved (`Dataset.save_to_disk`). The library is an optional extra: `hf`."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from v4model.errors import DataError


def folder_digest(path: Path) -> str:
    """sha256 over the names and contents of all files of a folder. Raises DataError."""
    whole = hashlib.sha256()
    try:
        for file in sorted(item for item in path.rglob("*") if item.is_file()):
            with file.open("rb") as opened:
                part = hashlib.file_digest(opened, "sha256").hexdigest()
            whole.update(f"{file.relative_to(path).as_posix()}\0{part}\n".encode())
    except OSError as error:
        got = f"a file that cannot be read ({error.strerror})"
        raise DataError(got=got, expected="a readable folder", where=str(error.filename)) from error
    return whole.hexdigest()


def folder_rows(path: Path) -> tuple[frozenset[str], Sequence[dict[str, Any]]]:
    """Columns and rows of a saved dataset. Raises DataError: no dataset, a folder of splits, the library not there."""
    if importlib.util.find_spec("datasets") is None:
        expected = "the extra installed (pip install v4pack[hf])"
        raise DataError(got="a datasets folder without the library datasets", expected=expected, where=str(path))
    import datasets

    try:
        found = datasets.load_from_disk(str(path))
    except Exception as error:  # the library and pyarrow below it raise many kinds for a folder that is not theirs
        reason = str(error).partition("\n")[0] or type(error).__name__
        got = f"a folder that cannot be read as a dataset ({reason})"
        raise DataError(got=got, expected="one that Dataset.save_to_disk wrote", where=str(path)) from error
    if isinstance(found, datasets.DatasetDict):
        splits = ", ".join(map(repr, found))
        raise DataError(got=f"a folder of splits {splits}", expected=f"one of them: {path}/SPLIT", where=str(path))
    return frozenset(found.column_names), _Rows(found)


class _Rows(Sequence[dict[str, Any]]):
    """Rows read one at a time, so that a large folder is not in memory twice."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: Any) -> Any:
        return self._table[index]
