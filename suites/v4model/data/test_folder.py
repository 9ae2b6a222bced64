"""Folders of Hugging Face datasets, written and read by the library itself."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest

from v4model.data.folder import folder_digest
from v4model.data.sources import load_samples, open_source
from v4model.data.tokenizer import ChatTokenizer, load_tokenizer
from v4model.errors import DataError

ALPACA = [{"instruction": "Add.", "input": "1, 2", "output": "3"}, {"instruction": "Hi.", "input": "", "output": "Ho"}]
CHAT = [{"messages": [{"role": "user", "content": "a?"}, {"role": "assistant", "content": "b"}]}]


@pytest.fixture(scope="module")
def tokenizer() -> ChatTokenizer:
    return load_tokenizer("bytes")


def saved(path: Path, rows: list[dict[str, Any]]) -> Path:
    datasets.Dataset.from_list(rows).save_to_disk(path)
    return path


def test_rows_become_samples_in_order(tokenizer: ChatTokenizer, tmp_path: Path) -> None:
    alpaca = load_samples(saved(tmp_path / "alpaca", ALPACA), tokenizer)
    assert [tokenizer.decode(sample.tokens[2:]).split("<")[0] for sample in alpaca] == ["Add.\n1, 2", "Hi."]
    assert len(load_samples(saved(tmp_path / "chat", CHAT), tokenizer)) == 1


def test_a_split_is_a_folder_of_its_own(tokenizer: ChatTokenizer, tmp_path: Path) -> None:
    datasets.DatasetDict({"train": datasets.Dataset.from_list(ALPACA)}).save_to_disk(tmp_path / "d")
    with pytest.raises(DataError, match=r"got a folder of splits 'train'; expected one of them: .*/d/SPLIT"):
        load_samples(tmp_path / "d", tokenizer)
    assert len(load_samples(tmp_path / "d" / "train", tokenizer)) == 2


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"question": "a", "answer": "b"}], r"columns 'answer', 'question'; expected 'messages', or 'instruction'"),
        ([ALPACA[0], ALPACA[0] | {"output": None}], r"got null; expected a text; where: .*, row 2 of 2, key 'output'"),
    ],
    ids=["columns", "value"],
)
def test_a_wrong_schema_is_refused(
    tokenizer: ChatTokenizer, tmp_path: Path, rows: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        load_samples(saved(tmp_path / "d", rows), tokenizer)


def test_a_dataset_without_rows_is_refused(tokenizer: ChatTokenizer, tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"messages": []}).save_to_disk(tmp_path / "d")
    with pytest.raises(DataError, match="cannot be read as a dataset"):
        load_samples(tmp_path / "d", tokenizer)


def test_another_folder_is_refused(tokenizer: ChatTokenizer, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("no dataset")
    with pytest.raises(DataError, match="a folder that cannot be read as a dataset"):
        load_samples(tmp_path, tokenizer)


def test_the_library_is_named_where_it_is_missing(
    tokenizer: ChatTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "d", ALPACA)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(DataError, match=r"pip install v4pack\[hf\]"):
        load_samples(folder, tokenizer)


def test_the_library_is_imported_for_folders_only() -> None:
    code = "import sys, v4model.data.sources; sys.exit('datasets' in sys.modules or 'torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=True)


def test_the_digest_follows_names_and_contents(tmp_path: Path) -> None:
    first = saved(tmp_path / "d", ALPACA)
    digest = folder_digest(first)
    copy = Path(shutil.copytree(first, tmp_path / "copy"))
    assert open_source(copy).digest == digest
    (copy / "more").write_text("x")
    longer = folder_digest(copy)
    (copy / "more").rename(copy / "other")
    assert len({digest, longer, folder_digest(copy)}) == 3
