"""Oracle 1: transformers' DeepseekV4ForCausalLM with the same weights, one sample at a time (it has no MTP).

Its indexer gets no gradient from the loss, like ours: it only chooses. Its top-k has no tie rule, and with few indexer
heads many scores are exactly 0; hence 32 heads, or as many picks as there are rows.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from torch import Tensor

from harness.errors import UsageError
from harness.subjects.transformers import SampleResult, TransformersReference, trunk_parameters
from harness.tolerance import GRADIENT_FLOOR_SHARE, ORACLE_F64, largest_magnitude, relative_error
from suites.v4model.oracles import (
    SAME_FORMULAS_F64,
    Agreement,
    AgreementTable,
    Record,
    config_of,
    model_of,
    sample_of,
    spread_pack,
)
from v4model import ConfigError, Pack, V4Config, presets
from v4model.hf_settings import transformers_settings

KINDS = {
    "dense": "dense",
    "csa": "csa,index_n_heads=32",  # index_topk is 4
    "csa_every_row": "csa,index_topk=32",
    "hca": "hca",
    "all": "all,index_n_heads=32",
    "three_kinds": "three_kinds",
}

# Around the first ratio-4 window and around the sliding window (8; 128 as released); then more rows than index_topk,
# and several HCA windows with a remainder.
SMALL = (1, 3, 4, 5, 7, 8, 9, 33, 66)
LENGTHS = dict.fromkeys(KINDS, SMALL) | {
    "csa_every_row": (33, 66),
    "three_kinds": (5, 127, 128, 129, 257, 385),
}
CASES = [(kind, length) for kind, lengths in LENGTHS.items() for length in lengths]
SHIPPED_CASES = [(kind, length) for kind, length in CASES if length in (9, 66, 129)]

# transformers as it is rounds to float32 on its way, whatever its weights: norms, RoPE, softmax of the compressors,
# mHC, indexer. The longest way through a layer has about 20 such roundings, each at most 2^-24 of its tensor, and every
# block norms its input, so they add up and do not grow.
FLOAT32_ROUNDING = 2.0**-24
ROUNDINGS_PER_LAYER = 20


def values_bound_as_shipped(config: V4Config) -> float:
    """2.4e-6 for two layers."""
    return FLOAT32_ROUNDING * ROUNDINGS_PER_LAYER * config.num_hidden_layers


@lru_cache
def reference_of(kind: str) -> TransformersReference:
    return TransformersReference(model_of(KINDS[kind]))


@lru_cache
def our_result(kind: str, length: int) -> SampleResult:
    model = model_of(KINDS[kind])
    out = model(Pack.from_samples([sample_of(model.config, length=length)]), logits=True)
    gradients = our_gradients(kind, out.main_loss if length > 1 else out.logits.square().sum())
    return SampleResult(out.logits.detach(), out.token_nll[:-1].detach(), out.main_loss.detach(), gradients)


def our_gradients(kind: str, scalar: Tensor) -> Mapping[str, Tensor | None]:
    parameters = trunk_parameters(model_of(KINDS[kind]))
    found = torch.autograd.grad(scalar, list(parameters.values()), allow_unused=True)
    return dict(zip(parameters, found, strict=True))


def compare_gradients(
    agreement: Agreement,
    got: Mapping[str, Tensor | None],
    expected: Mapping[str, Tensor | None],
    *,
    bound: float,
    floor_share: float,
) -> None:
    """Every parameter under one name; where transformers has no gradient, ours must be none or exactly 0."""
    assert got.keys() == expected.keys()
    largest = max(largest_magnitude(gradient) for gradient in expected.values() if gradient is not None)
    for name, gradient in expected.items():
        ours = got[name]
        if gradient is None:
            # The indexer's always, a compressor's where no window is complete.
            assert ".compressor." in name, f"transformers has no gradient for {name}"
            assert ours is None or not ours.any(), f"a gradient for {name}, which transformers does not reach"
        else:
            ours = torch.zeros_like(gradient) if ours is None else ours
            agreement.compare("gradients", ours, gradient, bound=bound, floor=floor_share * largest, where=name)


def compare_results(
    agreement: Agreement,
    got: SampleResult,
    expected: SampleResult,
    *,
    bound: float,
    gradient_bound: float,
    floor_share: float,
) -> None:
    agreement.compare("logits", got.logits, expected.logits, bound=bound)
    if len(expected.nll):
        agreement.compare("nll", got.nll, expected.nll, bound=bound)
        agreement.compare("loss", got.loss, expected.loss, bound=bound)
    else:
        assert got.loss == 0.0  # 0/0 there
    compare_gradients(agreement, got.gradients, expected.gradients, bound=gradient_bound, floor_share=floor_share)


@pytest.fixture(scope="module")
def table() -> Iterator[AgreementTable]:
    table = AgreementTable()
    yield table
    print(table.text())


def summed_gradients(results: Sequence[SampleResult]) -> dict[str, Tensor | None]:
    """Gradients of the summed nll of samples that transformers ran one by one; one token alone has no nll."""
    total: dict[str, Tensor | None] = dict.fromkeys(results[0].gradients)
    for result in results:
        labels = len(result.nll)
        for name, gradient in result.gradients.items():
            if labels and gradient is not None:
                before = total[name]
                total[name] = gradient * labels if before is None else before + gradient * labels
    return total


def test_cases_pick_fewer_and_all_of_the_rows() -> None:
    for kind in ("csa", "all", "three_kinds"):
        topk = config_of(KINDS[kind]).index_topk
        rows = [length // 4 for length in LENGTHS[kind]]
        assert any(0 < count <= topk for count in rows)
        assert any(count > topk for count in rows)
    assert max(LENGTHS["csa_every_row"]) // 4 <= config_of(KINDS["csa_every_row"]).index_topk


@pytest.mark.parametrize(("kind", "length"), CASES)
def test_one_sample_agrees_in_float64(kind: str, length: int, table: AgreementTable, record_property: Record) -> None:
    agreement = Agreement(kind, f"{length} tokens, in float64")
    reference = reference_of(kind)
    with reference.in_float64():
        expected = reference.run(sample_of(reference.config, length=length))
    compare_results(
        agreement,
        our_result(kind, length),
        expected,
        bound=SAME_FORMULAS_F64,
        gradient_bound=ORACLE_F64,
        floor_share=GRADIENT_FLOOR_SHARE,
    )
    table.settle(agreement, record_property)


@pytest.mark.parametrize(("kind", "length"), SHIPPED_CASES)
def test_one_sample_agrees_with_transformers_as_shipped(
    kind: str, length: int, table: AgreementTable, record_property: Record
) -> None:
    agreement = Agreement(f"{kind} as shipped", f"{length} tokens")
    reference = reference_of(kind)
    expected = reference.run(sample_of(reference.config, length=length))
    # Gradients of sums that cancel keep the rounding of their terms, so none is measured below the model's largest.
    bound = values_bound_as_shipped(reference.config)
    compare_results(agreement, our_result(kind, length), expected, bound=bound, gradient_bound=bound, floor_share=1.0)
    table.settle(agreement, record_property)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_samples_agree_with_each_run_alone(kind: str, table: AgreementTable, record_property: Record) -> None:
    """Starts off every ratio, padding inside and behind; transformers sees one sample at a time."""
    model, reference = model_of(KINDS[kind]), reference_of(kind)
    lengths = (3, 130, 133) if kind == "three_kinds" else (5, 1, 33, 8, 18)
    samples = [sample_of(model.config, length=length) for length in lengths]
    pack = spread_pack(samples)
    out = model(pack, logits=True)

    agreement = Agreement(f"{kind} packed", f"{len(samples)} samples, in float64")
    with reference.in_float64():
        alone = [reference.run(sample) for sample in samples]
    for result, start, length in zip(alone, pack.layout.starts, lengths, strict=True):
        got, where = out.logits[start : start + length], f"of the sample at token {start}"
        agreement.compare("logits", got, result.logits, bound=SAME_FORMULAS_F64, where=where)
    gradients, expected = our_gradients(kind, out.terms.nll_sums[0]), summed_gradients(alone)
    compare_gradients(agreement, gradients, expected, bound=ORACLE_F64, floor_share=GRADIENT_FLOOR_SHARE)
    table.settle(agreement, record_property)


def test_comparison_in_float64_sees_a_weight_off_by_1e_8() -> None:
    """The lifting is honest: 1e-8 in a weight of any kind that moves values at all is far beyond the bound."""
    reference = TransformersReference(model_of(KINDS["all"]))
    sample, ours = sample_of(reference.config, length=33), our_result("all", 33).logits
    source = torch.Generator().manual_seed(0)
    seen: dict[str, float] = {}
    with reference.in_float64(), torch.no_grad():
        for name, weight in reference.model.named_parameters():
            kind = re.sub(r"layers\.\d+", "layers.N", name)
            if kind in seen or ".indexer." in name:
                continue  # an indexer only chooses
            kept = weight.clone()
            noise = torch.randn(weight.shape, generator=source, dtype=torch.float64)
            weight.add_(noise, alpha=1e-8 * largest_magnitude(weight))
            seen[kind] = relative_error(ours, reference.logits(sample), floor=0.0)
            weight.copy_(kept)
    quietest = min(seen, key=lambda kind: seen[kind])
    print(f"all: weights off by 1e-8 show as {seen[quietest]:.1e} ({quietest}) to {max(seen.values()):.1e}")
    assert seen[quietest] > 10 * SAME_FORMULAS_F64, quietest


def test_lifting_the_islands_leaves_no_trace() -> None:
    reference, sample = reference_of("all"), sample_of(config_of("all"), length=9)
    before = reference.logits(sample)
    with reference.in_float64():
        inside = reference.logits(sample)
    assert not torch.equal(inside, before)
    assert torch.equal(reference.logits(sample), before)
    assert torch.ones(1).double().float().dtype == torch.float32


def test_missing_transformers_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers.models.deepseek_v4.modeling_deepseek_v4", None)
    with pytest.raises(UsageError, match=r"expected transformers 5\.23 or newer, the extra 'test'"):
        TransformersReference(model_of("dense"))


def test_trunk_with_two_hca_ratios_is_refused() -> None:
    config = replace(presets.tiny(), compress_ratios=(0, 8, 16, 4, 0, 4))
    with pytest.raises(ConfigError, match=r"got HCA ratios \[8, 16\]; expected one ratio"):
        transformers_settings(config)
