"""Records: complete, in the order of execution, alike for samples alone, on ranks and in other layouts."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from harness.case import Case
from harness.properties.parting import Comparison
from harness.properties.read_record import record_of
from harness.properties.runs import laid_out
from harness.subjects.alone import recorded_alone
from harness.subjects.numpy_reading import ReadingConfig, read
from harness.subjects.protocol import Recorder
from harness.subjects.record import (
    NONE,
    OUTSIDE,
    Record,
    depth_of,
    laid_on,
    layer_of,
    module_of,
    names_pooled_rows,
    names_reads,
)
from harness.subjects.v4model_one_rank import V4OneRank, build
from suites.harness import fakes
from v4model import Pack

CASE = Case.from_token("all/9.22p3.17+56/s11")


def _subject_and_pack() -> tuple[V4OneRank, Pack]:
    return build(CASE.v4config(), CASE.torch_dtype(), CASE.seed), CASE.pack(fakes.corpus())


def _differing(got: Record, expected: Record) -> list[str]:
    layout = CASE.layout()
    comparison = Comparison(
        got=got, expected=expected, layout=layout, config=CASE.v4config(), agree=lambda _: layout.real, bound=1e-9
    )
    pooled = [name for name in comparison.names if names_pooled_rows(name) and bool(comparison.moved(name).any())]
    return [*comparison.wrong_names(), *pooled, *(set(got) ^ set(expected))]


def test_a_block_is_recorded_in_the_order_of_execution() -> None:
    subject, pack = _subject_and_pack()
    record = subject.layer_outputs(pack)
    assert [name for name in record if name.startswith("layers.1.")] == [
        "layers.1.attn_hc",
        "layers.1.self_attn.compressor",
        "layers.1.self_attn.indexer.compressor",
        "layers.1.self_attn.indexer.picks",
        "layers.1.self_attn.indexer.scores",
        "layers.1.self_attn.local",
        "layers.1.self_attn.windows",
        "layers.1.self_attn.visible",
        "layers.1.self_attn",
        "layers.1.attn_hc.streams",
        "layers.1.ffn_hc",
        "layers.1.mlp.gate.affinity",
        "layers.1.mlp.gate.choice",
        "layers.1.mlp.gate.experts",
        "layers.1.mlp",
        "layers.1.ffn_hc.streams",
    ]
    assert [name for name in record if name.startswith("mtp.0.")][:4] == [
        "mtp.0.e_proj.ahead", "mtp.0.e_proj.shifted", "mtp.0.e_proj", "mtp.0.attn_hc",
    ]  # fmt: skip
    assert len({name.split(".")[1] for name in record if name.startswith("layers.")}) == 4
    assert all(len(table) == 56 for name, table in record.items() if not names_pooled_rows(name))
    assert list(record["layers.1.self_attn.windows"]) == [0, 4, 9, 13, 17, 21, 25, 34, 38, 42, 46]
    assert not any(table.requires_grad for table in record.values())


def test_what_is_read_is_named_by_tokens_of_the_pack() -> None:
    subject, pack = _subject_and_pack()
    record = subject.layer_outputs(pack)
    # Token 20 is position 11 of the second sample, which starts at 9: window 8, and windows of 4 complete up to it.
    assert sorted(record["layers.1.self_attn.local"][20].tolist()) == list(range(13, 21))
    assert [token for token in record["layers.1.self_attn.visible"][20].tolist() if token != NONE] == [9, 13, 17]
    assert record["layers.1.self_attn.indexer.picks"][20].tolist() == [9, 13, 17, NONE]
    assert record["mtp.0.e_proj.ahead"][[29, 30]].tolist() == [[30], [NONE]]
    assert record["mtp.1.e_proj.ahead"][[28, 29]].tolist() == [[30], [NONE]]


def test_samples_alone_and_ranks_give_the_record_of_the_pack() -> None:
    subject, pack = _subject_and_pack()
    whole = subject.layer_outputs(pack)
    assert _differing(recorded_alone(subject, pack, embeddings=None), whole) == []
    ranked = subject.on_ranks(3, processes=False)
    assert isinstance(ranked, Recorder)
    assert _differing(ranked.layer_outputs(pack), whole) == []
    embeddings = subject.embeddings(pack)
    assert _differing(recorded_alone(subject, pack, embeddings=embeddings), whole) == []
    assert _differing(ranked.layer_outputs(pack, embeddings=embeddings), whole) == []


def test_processes_give_the_record_of_the_pack() -> None:
    subject, pack = _subject_and_pack()
    ranked = subject.on_ranks(2, processes=True)
    assert isinstance(ranked, Recorder)
    record = ranked.layer_outputs(pack, embeddings=subject.embeddings(pack))
    assert _differing(record, subject.layer_outputs(pack)) == []


def test_a_plain_reading_gives_the_record_of_the_pack() -> None:
    subject, pack = _subject_and_pack()
    weights, config = subject.export_weights(), subject.config
    reading_config = ReadingConfig.from_mapping(dataclasses.asdict(config))
    readings = [
        read(reading_config, weights, pack.tokens[start : start + length].tolist())
        for start, length in zip(pack.layout.starts, pack.layout.lengths, strict=True)
    ]
    record, whole = record_of(readings, config=config, layout=pack.layout), subject.layer_outputs(pack)
    assert set(record) < set(whole)
    # All that the comparison of a violated property needs.
    assert {name.rsplit(".", 1)[-1] for name in whole} - {name.rsplit(".", 1)[-1] for name in record} == {
        "scores", "affinity", "choice", "e_proj",
    }  # fmt: skip
    comparison = Comparison(
        got=whole, expected=record, layout=pack.layout, config=config, bound=1e-10,
        agree=lambda depth: pack.layout.ahead(depth) >= 0,
    )  # fmt: skip
    assert list(comparison.wrong_names()) == []
    assert not any(bool(comparison.moved(name).any()) for name in comparison.names if names_pooled_rows(name))


def test_another_layout_gives_the_record_of_the_pack() -> None:
    subject, pack = _subject_and_pack()
    front = Case.from_token("all/7/s5").pack(fakes.corpus())
    moved, moved_to = laid_out(pack, order=[2, 0, 1], paddings=[1, 0, 2], tail=3, front=front)
    tokens = torch.full((moved.layout.total,), NONE)
    tokens[moved_to] = pack.layout.real.nonzero()[:, 0]
    record = laid_on([(subject.layer_outputs(moved), tokens)], total=56)
    whole = subject.layer_outputs(pack)
    order = record["layers.1.self_attn.windows"].argsort()
    for name in ("compressor", "indexer.compressor", "windows"):
        record[f"layers.1.self_attn.{name}"] = record[f"layers.1.self_attn.{name}"][order]
    assert [name for name in _differing(record, whole) if name.startswith(("layers.0", "layers.1", "mtp.0"))] == []


def test_what_the_pack_does_not_hold_is_outside() -> None:
    reads = torch.tensor([[0, NONE], [0, 1], [1, 2]])
    part: dict[str, Tensor] = {
        "layers.1.self_attn.local": reads,
        "layers.1.self_attn.windows": torch.tensor([0, 1]),
        "layers.1.self_attn.compressor": torch.tensor([[1.0], [2.0]]),
        "layers.1.self_attn": torch.tensor([[1.0], [2.0], [3.0]]),
    }
    record = laid_on([(part, torch.tensor([NONE, 3, 1]))], total=4)
    assert record["layers.1.self_attn.local"].tolist() == [[NONE] * 2, [3, 1], [NONE] * 2, [OUTSIDE, 3]]
    assert record["layers.1.self_attn.windows"].tolist() == [3]
    assert record["layers.1.self_attn.compressor"].tolist() == [[2.0]]
    assert record["layers.1.self_attn"].tolist() == [[0.0], [3.0], [0.0], [2.0]]


def test_names_say_what_they_are() -> None:
    assert names_reads("layers.1.self_attn.indexer.picks")
    assert not names_reads("layers.1.self_attn.indexer.scores")
    assert names_pooled_rows("mtp.0.self_attn.indexer.compressor")
    assert module_of("mtp.0.e_proj.shifted") == module_of("mtp.0.e_proj") == "mtp.0.e_proj"
    assert (depth_of("layers.3.mlp"), depth_of("mtp.0.mlp")) == (0, 1)
    assert (layer_of("layers.3.mlp", num_hidden_layers=4), layer_of("mtp.1.mlp", num_hidden_layers=4)) == (3, 5)
