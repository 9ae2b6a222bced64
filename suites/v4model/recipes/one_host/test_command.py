"""The command itself: two tiny runs on one and two gloo ranks to a table, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from v4model.recipes.one_host import __main__ as command


def test_two_runs_and_their_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--gpus", "2", "--rehearsal", "--output", str(tmp_path)]
    assert command.main([*words, "--minutes", "5", "--only", "scaling-1", "--only", "scaling-2"]) == 0
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "| scaling-" in line]
    assert [row[0] for row in rows] == ["scaling-1", "scaling-2"]
    assert [row[-1] for row in rows] == ["well", "well"]
    one, two = rows
    assert one[4] == two[4] == "3 of 3"
    # The same curve, in float32: losses and norms to four decimals.
    assert one[5:7] == two[5:7]
    counted, formula = (int(number.replace(",", "")) for number in two[12].split("/"))
    assert counted == formula > 0
    assert (tmp_path / "scaling.png").stat().st_size > 10_000
    # A log that is not there any more is a failure of the table, not a row less.
    (tmp_path / "scaling-2" / "log.jsonl").unlink()
    capsys.readouterr()
    assert command.main([*words, "--summary"]) == 1
    assert "scaling-2: 0 of 3 steps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpus", "99"], "got 0 GPUs; expected 99, or --rehearsal; where: this machine"),
        (["--gpus", "2", "--rehearsal", "--only", "scaling-3"], "got stage scaling-3; expected some of ranks"),
        (["--gpus", "2", "--rehearsal", "--summary"], "got no stage that ran"),
    ],
    ids="gpus stage nothing".split(),
)
def test_what_cannot_be_run_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert command.main([*words, "--output", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


def test_a_dry_run_prints_every_stage(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--gpus", "8", "--dry-run"]) == 0
    names = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == [
        "ranks", "properties", "scaling-1", "scaling-2", "scaling-4", "scaling-8", "seed-131072", "deep-131072",
        "deep-4096",
    ]  # fmt: skip
