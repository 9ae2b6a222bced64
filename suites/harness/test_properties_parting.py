"""Where two records part: branch, layer and row, from records made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from harness.case import Case
from harness.properties.parting import Comparison, Origin
from harness.witness import Place, Reading

# Layers dense, CSA, HCA, CSA; window 8. 12 // 4 = 3 rows of the first sample, 20 // 4 = 5 of the second.
CASE = Case(config="all", lengths=(12, 20), total=32, seed=0)
SECOND_SAMPLE = torch.arange(32) >= 12
WINDOWS = torch.tensor([0, 4, 8, 12, 16, 20, 24, 28])


def ones_at(rows: list[int], *, count: int = 32) -> Tensor:
    table = torch.zeros(count, 2, dtype=torch.float64)
    table[rows] = 1.0
    return table


def compared(
    got: Mapping[str, Tensor], expected: Mapping[str, Tensor] | None = None, *, bound: float = 0.0
) -> Comparison:
    """Tables that are not given as expected were zeros, or the same if they say what is read."""
    base = {name: table if not table.is_floating_point() else torch.zeros_like(table) for name, table in got.items()}
    return Comparison(
        got=got,
        expected={**base, **(expected or {})},
        layout=CASE.layout(),
        config=CASE.v4config(),
        agree=lambda _depth: SECOND_SAMPLE,
        bound=bound,
    )


def told(comparison: Comparison, *, near: int | None = None) -> tuple[str, str, int, str]:
    origin = comparison.origin(near=near)
    assert isinstance(origin, Origin)
    return origin.branch, origin.layer, origin.at.token, str(origin.row)


def attention(
    layer: int, *, moved: list[int], reads: Mapping[int, list[int]], inputs: list[int], pool: list[int] | None = None
) -> dict[str, Tensor]:
    """An attention layer in which every token reads itself, and some rows what is said of pooled windows."""
    name = f"layers.{layer}.self_attn"
    visible = torch.full((32, 3), -1)
    for row, windows in reads.items():
        visible[row, : len(windows)] = torch.tensor(windows)
    tables = {
        f"layers.{layer}.attn_hc": ones_at(inputs),
        f"{name}.local": torch.arange(32)[:, None],
        name: ones_at(moved),
    }
    if pool is not None:
        tables |= {f"{name}.compressor": ones_at(pool, count=8), f"{name}.windows": WINDOWS, f"{name}.visible": visible}
    return tables


def test_rows_that_may_move_say_nothing() -> None:
    assert compared({"layers.0.self_attn": ones_at([11]), "layers.0.mlp": ones_at([11])}).origin(near=None) is None


def test_the_first_layer_counts_and_in_it_the_nearest_row() -> None:
    tables = {"layers.0.mlp": ones_at([14, 30]), "layers.1.self_attn": ones_at([20])}
    assert told(compared(tables)) == ("router", "layers.0.mlp", 14, "None")
    assert told(compared(tables), near=27) == ("router", "layers.0.mlp", 30, "None")
    gate = {"layers.1.mlp.gate.experts": torch.arange(32)[:, None], **tables}
    chosen = compared(gate, {"layers.1.mlp.gate.experts": torch.zeros(32, 1, dtype=torch.int64)})
    assert told(chosen)[:2] == ("router", "layers.1.mlp.gate")
    assert told(compared({"layers.2.ffn_hc.streams": ones_at([12])}))[:2] == ("unknown", "layers.2.ffn_hc")


def test_without_what_is_read_only_a_dense_layer_is_certain() -> None:
    assert told(compared({"layers.0.self_attn": ones_at([12])}))[:2] == ("local", "layers.0.self_attn")
    assert told(compared({"layers.1.self_attn": ones_at([12])}))[:2] == ("local or pool", "layers.1.self_attn")


def test_a_token_that_is_read_and_moved_is_local() -> None:
    tables = attention(1, moved=[12, 15], reads={}, inputs=[11], pool=[])
    tables["layers.1.self_attn.local"] = torch.stack([torch.arange(32), torch.arange(32) - 1], dim=1)
    assert told(compared(tables)) == ("local", "layers.1.self_attn", 12, "reads token 11 (sample 0, position 11)")


def test_a_token_that_only_one_run_reads_is_local() -> None:
    tables = attention(0, moved=[14], reads={}, inputs=[])
    expected = {"layers.0.self_attn.local": torch.stack([torch.arange(32), torch.arange(32) - 1], dim=1)}
    comparison = compared(tables, expected, bound=1e-9)
    assert told(comparison, near=14) == (
        "local",
        "layers.0.self_attn",
        14,
        "does not read token 13 (sample 1, position 1)",
    )


def test_right_rows_and_a_wrong_result_are_no_branch() -> None:
    assert told(compared(attention(0, moved=[12], reads={}, inputs=[11])))[::3] == ("unknown", "None")


def test_a_moved_row_that_all_see_is_of_the_pool() -> None:
    # Row 3 is the first window of the second sample.
    tables = attention(1, moved=[16], reads={16: [12]}, inputs=[11], pool=[1, 3])
    assert told(compared(tables)) == (
        "pool", "layers.1.self_attn", 16, "reads the pooled row of tokens 12 to 15 (sample 1, window 0)",
    )  # fmt: skip
    between_layouts = compared(tables, bound=1e-9).origin(near=None)
    assert between_layouts is not None
    assert between_layouts.row is not None
    assert between_layouts.row.reading is Reading.DIFFERENT


def test_a_moved_row_that_nobody_reads_says_nothing() -> None:
    comparison = compared(attention(1, moved=[16], reads={16: [12]}, inputs=[11], pool=[1]))
    assert told(comparison)[0] == "unknown"
    assert compared(attention(1, moved=[], reads={}, inputs=[11], pool=[1, 3])).origin(near=None) is None


def picking(picks: Mapping[int, list[int]], *, pool: list[int]) -> dict[str, Tensor]:
    tables = attention(1, moved=[20], reads={20: [12, 16]}, inputs=[], pool=pool)
    tables["layers.1.self_attn.indexer.picks"] = torch.full((32, 2), -1)
    for row, windows in picks.items():
        tables["layers.1.self_attn.indexer.picks"][row, : len(windows)] = torch.tensor(windows)
    return tables


def test_a_row_beyond_those_to_choose_from_is_of_the_picks() -> None:
    tables = picking({20: [4, 12]}, pool=[1])
    assert told(compared(tables))[::3] == ("picks", "reads the pooled row of tokens 4 to 7 (sample 0, window 1)")


def test_a_candidate_that_moved_is_of_the_pool_wherever_there_is_a_choice() -> None:
    assert told(compared(picking({20: [12]}, pool=[3])))[0] == "pool"
    # It moved, but was not picked.
    assert told(compared(picking({20: [16]}, pool=[3])))[0] == "unknown"


def test_another_choice_is_of_the_picks() -> None:
    expected = picking({20: [16]}, pool=[])
    found = compared(picking({20: [12]}, pool=[]), {name: expected[name] for name in expected if "picks" in name})
    assert told(found)[::3] == ("picks", "reads the pooled row of tokens 12 to 15 (sample 1, window 0)")


def test_keys_of_the_indexer_are_of_the_picks() -> None:
    tables = picking({20: [16]}, pool=[])
    tables["layers.1.self_attn.indexer.compressor"] = ones_at([4], count=8)
    assert told(compared(tables))[::3] == ("picks", "reads the pooled row of tokens 16 to 19 (sample 1, window 1)")


def test_windows_that_one_run_has_not_are_of_the_pool() -> None:
    got = attention(1, moved=[20], reads={20: [13]}, inputs=[], pool=[])
    got["layers.1.self_attn.windows"] = WINDOWS + (WINDOWS >= 12)
    expected = attention(1, moved=[], reads={20: [12]}, inputs=[], pool=[])
    assert told(compared(got, expected, bound=1e-9))[::3] == (
        "pool", "reads the pooled row of tokens 13 to 16 (sample 1, from position 1 on)",
    )  # fmt: skip


def test_an_embedding_ahead_is_the_shift() -> None:
    ahead = torch.arange(32)[:, None] + 1
    tables = {"mtp.0.e_proj.ahead": ahead, "mtp.0.e_proj.shifted": ones_at([20]), "mtp.0.self_attn": ones_at([20])}
    assert told(compared(tables)) == ("shift", "mtp.0.e_proj", 20, "reads token 21 (sample 1, position 9)")


def test_rounding_between_layouts_is_no_parting() -> None:
    table = torch.ones(32, 2, dtype=torch.float64)
    comparison = compared({"layers.0.mlp": table * (1 + 1e-12)}, {"layers.0.mlp": table}, bound=1e-9)
    assert comparison.origin(near=None) is None
    assert replace(comparison, bound=0.0).origin(near=None) is not None


def test_a_row_from_outside_the_pack_has_no_place() -> None:
    tables = attention(0, moved=[12], reads={}, inputs=[])
    tables["layers.0.self_attn.local"] = torch.where(torch.arange(32) == 12, -2, torch.arange(32))[:, None]
    expected = {"layers.0.self_attn.local": torch.arange(32)[:, None]}
    comparison = compared(tables, expected, bound=1e-9)
    # Token 12 does not read itself, and it reads what is not there. Of the two, the place that is known is told.
    origin = comparison.origin(near=12)
    assert origin is not None
    assert origin.row is not None
    assert origin.row.first == Place(1, 0, 12)
