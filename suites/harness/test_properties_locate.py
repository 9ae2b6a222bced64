"""Where a leak entered: branch and layer, from recorded outputs made by hand and from the real model with a fault."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from harness.case import Case
from harness.catalogue import find_fault, find_property
from harness.properties.isolation import FUTURE, SAMPLE
from harness.properties.locate import locate
from harness.properties.measure import place_of
from harness.properties.perturb import Inputs
from harness.subjects.protocol import Observation
from harness.subjects.v4model_one_rank import build
from suites.harness import fakes
from suites.harness.fake_subject import FakeModel
from v4model import Pack

CASE = Case(config="all", lengths=(12, 20), total=32, seed=0)
SECOND_SAMPLE = torch.arange(32) >= 12


class Recorded(FakeModel):
    """Gives what it was told as layer outputs: zeros, and ones at the rows that move where the ids are not all 0."""

    def __init__(self, moved: Mapping[str, list[int]], *, pooled: Mapping[str, int]) -> None:
        super().__init__(CASE.v4config(), torch.float64, 0, defects=frozenset())
        self._moved = moved
        self._pooled = pooled

    def layer_outputs(self, pack: Pack, *, embeddings: Tensor | None = None) -> Mapping[str, Tensor]:
        """As told."""
        assert embeddings is None
        outputs = {}
        for name, rows in self._moved.items():
            outputs[name] = torch.zeros(self._pooled.get(name, 32), 2)
            if bool(pack.tokens.any()):
                outputs[name][rows] = 1.0
        return outputs


def located(
    moved: Mapping[str, list[int]], *, source: int, pooled: Mapping[str, int] | None = None
) -> tuple[str, str | None]:
    layout = CASE.layout()
    before = Inputs(Pack(torch.zeros(32, dtype=torch.int64), layout=layout))
    after = Inputs(Pack(torch.ones(32, dtype=torch.int64), layout=layout))
    return locate(
        Recorded(moved, pooled=pooled or {}),
        before=before,
        after=after,
        source=place_of(layout, source),
        forbidden=lambda _depth: SECOND_SAMPLE,
    )


def test_rows_that_may_move_say_nothing() -> None:
    assert located({"layers.0.self_attn": [11], "layers.0.mlp": [11]}, source=11) == ("unknown", None)


def test_a_dense_layer_can_only_read_its_window() -> None:
    moved = {"layers.0.attn_hc": [11], "layers.0.self_attn": [11, *range(12, 19)], "layers.0.mlp": list(range(11, 19))}
    assert located(moved, source=11) == ("local", "layers.0.self_attn")


def test_the_first_module_counts() -> None:
    assert located({"layers.0.mlp": [30], "layers.1.self_attn": [20]}, source=11) == ("router", "layers.0.mlp")
    assert located({"mtp.0.e_proj": [12], "mtp.0.self_attn": [12]}, source=11) == ("shift", "mtp.0.e_proj")
    assert located({"layers.2.ffn_hc": [12]}, source=11) == ("unknown", "layers.2.ffn_hc")


def test_a_row_beyond_the_window_was_picked() -> None:
    # Layer 1 is CSA, window 8: token 11 is the last one that moved before, token 19 is 8 further.
    assert located({"layers.1.self_attn": [12, 19]}, source=11) == ("picks", "layers.1.self_attn")


def test_exactly_the_window_is_local_in_any_layer() -> None:
    assert located({"layers.1.self_attn": list(range(12, 19))}, source=11) == ("local", "layers.1.self_attn")


def test_some_rows_of_the_window_may_be_either() -> None:
    assert located({"layers.1.self_attn": [13, 14]}, source=11) == ("local or pool", "layers.1.self_attn")


def test_a_pooled_row_of_the_other_sample_is_the_pool() -> None:
    # 12 // 4 = 3 rows of the first sample, 20 // 4 = 5 of the second.
    moved = {"layers.1.self_attn.compressor": [2, 3], "layers.1.self_attn": [12, 13]}
    pooled = {"layers.1.self_attn.compressor": 8}
    assert located(moved, source=11, pooled=pooled) == ("pool", "layers.1.self_attn")
    own = {"layers.1.self_attn.compressor": [2], "layers.1.self_attn": [12, 13]}
    assert located(own, source=11, pooled=pooled) == ("local or pool", "layers.1.self_attn")


def test_pooled_rows_that_cannot_be_told_apart_say_nothing() -> None:
    moved = {"layers.1.self_attn.compressor": [0, 5], "layers.1.self_attn": [12, 13]}
    pooled = {"layers.1.self_attn.compressor": 7}
    assert located(moved, source=11, pooled=pooled) == ("local or pool", "layers.1.self_attn")


def test_without_a_recorder_nothing_is_known() -> None:
    inputs = Inputs(Pack(torch.zeros(32, dtype=torch.int64), layout=CASE.layout()))
    subject = FakeModel(CASE.v4config(), torch.float64, 0, defects=frozenset())
    place = place_of(CASE.layout(), 3)
    found = locate(subject, before=inputs, after=inputs, source=place, forbidden=lambda _depth: SECOND_SAMPLE)
    assert found == ("unknown", None)


@pytest.mark.parametrize(
    ("fault", "name", "kind", "branch", "layer"),
    [
        ("B1", SAMPLE, "all", "local", "layers.0.self_attn"),
        ("B1", SAMPLE, "hca", "local", "layers.0.self_attn"),
        ("C3", SAMPLE, "all", "pool", "layers.1.self_attn"),
        ("A1", SAMPLE, "dense", "local", "mtp.0.self_attn"),
        ("D1", SAMPLE, "dense", "shift", "mtp.0.e_proj"),
        ("C7", FUTURE, "hca", "local or pool", "layers.0.self_attn"),
    ],
)
def test_faults_of_the_real_model_are_located(fault: str, name: str, kind: str, branch: str, layer: str) -> None:
    case = Case(config=kind, lengths=(9, 22, 17), total=48, seed=11)
    subject = build(case.v4config(), case.torch_dtype(), case.seed)
    with find_fault(fault).apply(subject):
        witness = find_property(name).check(subject, case, fakes.corpus()).witness
    assert witness is not None
    assert (witness.branch, witness.layer) == (branch, layer)
    assert f"through the {branch} branch of {layer}" in witness.sentence()


def test_recorded_outputs_are_those_of_the_run() -> None:
    case = Case(config="all", lengths=(6, 5), total=12, seed=1)
    subject = build(case.v4config(), case.torch_dtype(), case.seed)
    pack = case.pack(fakes.corpus())
    outputs = subject.layer_outputs(pack)
    blocks = [f"layers.{layer}" for layer in range(4)] + [f"mtp.{depth}" for depth in range(2)]
    parts = {f"{block}.{part}" for block in blocks for part in ("attn_hc", "self_attn", "ffn_hc", "mlp")}
    assert parts <= set(outputs)
    assert "mtp.0.e_proj" in outputs
    assert [name for name in outputs if name in parts] == [
        f"{block}.{part}" for block in blocks for part in ("attn_hc", "self_attn", "ffn_hc", "mlp")
    ]
    assert all(len(outputs[name]) == 12 for name in parts)
    assert len(outputs["layers.1.self_attn.compressor"]) == 2
    given = subject.layer_outputs(pack, embeddings=subject.embeddings(pack))
    assert all(torch.equal(given[name], outputs[name]) for name in outputs)
    observed: Observation = subject.observe(pack)
    assert torch.equal(observed.depths[0].values, subject.observe(pack).depths[0].values)
