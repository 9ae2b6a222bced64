"""Share: what a pipeline stage and an expert rank hold, and that together they hold the model once."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from v4model import ConfigError, V4Config, V4Model, presets
from v4model.layers.share import Share

CONFIG = presets.tiny()


def layered(num_layers: int) -> V4Config:
    return dataclasses.replace(CONFIG, num_hidden_layers=num_layers, compress_ratios=(4,) * (num_layers + 2))


@pytest.mark.parametrize(
    ("num_layers", "stages", "sizes"),
    [(4, 1, [4]), (4, 2, [2, 2]), (4, 4, [1, 1, 1, 1]), (5, 2, [3, 2]), (7, 3, [3, 2, 2]), (11, 4, [3, 3, 3, 2])],
)
def test_stages_hold_runs_of_layers_the_first_ones_one_more(num_layers: int, stages: int, sizes: list[int]) -> None:
    config = layered(num_layers)
    runs = [Share(stage=stage, stages=stages).layers(config) for stage in range(stages)]
    assert [layer for run in runs for layer in run] == list(range(num_layers))
    assert [len(run) for run in runs] == sizes


@pytest.mark.parametrize(("num_experts", "ranks"), [(8, 1), (8, 2), (8, 8), (256, 16), (6, 3)])
def test_expert_ranks_hold_equal_runs(num_experts: int, ranks: int) -> None:
    runs = [Share(expert_rank=rank, expert_ranks=ranks).experts(num_experts) for rank in range(ranks)]
    assert [expert for run in runs for expert in run] == list(range(num_experts))
    assert {len(run) for run in runs} == {num_experts // ranks}


def test_the_whole_model_is_first_and_last() -> None:
    whole = Share()
    assert whole.is_first
    assert whole.is_last
    ends = [(share.is_first, share.is_last) for share in (Share(stage=stage, stages=3) for stage in range(3))]
    assert ends == [(True, False), (False, False), (False, True)]


@pytest.mark.parametrize(
    ("numbers", "got", "expected"),
    [
        ({"stage": 2, "stages": 2}, "stage 2", "0 to 1"),
        ({"stage": -1}, "stage -1", "0 to 0"),
        ({"expert_rank": 4, "expert_ranks": 4}, "expert_rank 4", "0 to 3"),
        ({"stages": 0}, "stage 0", "0 to -1"),
    ],
)
def test_a_number_outside_its_range_is_refused(numbers: dict[str, int], got: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Share(**numbers)
    assert (caught.value.got, caught.value.expected, caught.value.where) == (got, expected, "Share")


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(ConfigError, match="got 5 stages; expected at most 4, the trunk's layers"):
        Share(stages=5).layers(CONFIG)
    with pytest.raises(ConfigError, match="got 5 stages"):
        V4Model(CONFIG, share=Share(stages=5))


def test_experts_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ConfigError, match="got 3 expert ranks; expected a divisor of 8 experts"):
        Share(expert_ranks=3).experts(8)
    with pytest.raises(ConfigError, match="got 3 expert ranks"):
        V4Model(CONFIG, share=Share(expert_ranks=3))


def names_of(share: Share) -> set[str]:
    return set(V4Model(CONFIG, device="meta", share=share).state_dict())


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_stages_together_hold_every_tensor_once_and_the_embedding_at_both_ends(stages: int) -> None:
    held = Counter(name for stage in range(stages) for name in names_of(Share(stage=stage, stages=stages)))
    assert set(held) == names_of(Share())
    # MTP embeds the tokens ahead on the last stage.
    assert {name for name, count in held.items() if count > 1} == (
        {"trunk.embed_tokens.weight"} if stages > 1 else set()
    )
    assert max(held.values()) <= 2


def test_without_mtp_only_the_first_stage_embeds() -> None:
    config = dataclasses.replace(CONFIG, num_nextn_predict_layers=0, compress_ratios=(0, 4, 16, 4))
    stages = [V4Model(config, device="meta", share=Share(stage=stage, stages=2)).state_dict() for stage in range(2)]
    assert ["trunk.embed_tokens.weight" in names for names in stages] == [True, False]
    assert ["lm_head.weight" in names for names in stages] == [False, True]


@pytest.mark.parametrize("ranks", [2, 8])
def test_expert_ranks_hold_their_runs_of_every_stack_and_all_else_alike(ranks: int) -> None:
    whole = V4Model(CONFIG, device="meta")
    for rank in range(ranks):
        part = V4Model(CONFIG, device="meta", share=Share(expert_rank=rank, expert_ranks=ranks)).state_dict()
        assert part.keys() == whole.state_dict().keys()
        for name, tensor in whole.state_dict().items():
            experts = tensor.shape[0] // ranks if ".mlp.experts." in name else tensor.shape[0]
            assert part[name].shape == (experts, *tensor.shape[1:]), name


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Share().stage = 1  # type: ignore[misc]
