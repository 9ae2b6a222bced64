"""Oracle 2: the plain NumPy reading of the model's definition, MTP depths, balance and index losses included."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness.subjects.numpy_reading import DepthReading, Reading, ReadingConfig, directional_derivative, read
from suites.v4model.oracles import (
    SAME_FORMULAS_F64,
    Agreement,
    AgreementTable,
    Record,
    model_of,
    sample_of,
    spread_pack,
)
from v4model import Pack, V4Model, V4Output, hf
from v4model.layers.indexer import Indexer, Picked
from v4model.layers.router import Router, Routing

KINDS = {"dense": "dense", "csa": "csa", "hca": "hca", "all": "all", "three_kinds": "three_kinds"}

# Around the MTP depths (2), the first ratio-4 window and the sliding window (8; 128 as released), then many windows.
LENGTHS = dict.fromkeys(KINDS, (1, 2, 3, 4, 5, 7, 8, 9, 33, 130)) | {"three_kinds": (1, 4, 127, 129, 260)}
CASES = [(kind, length) for kind, lengths in LENGTHS.items() for length in lengths]

# The divergence of a single pick is exactly 0; sums of less than this are not told from rounding.
KL_FLOOR_NATS = 1e-3

# Central differences of the reading: a loss near 10 is rounded by about 1e-15 of it, which over the step is 1e-8; the
# next term of the series, step^2, is 1e-12. Relative to the norm of the gradient, which is 0.6 and more. Seen: 1.4e-9.
DIFFERENCE_STEP = 1e-6
DIFFERENCE_BOUND = 2e-8


def reading_config(model: V4Model) -> ReadingConfig:
    return ReadingConfig.from_mapping(asdict(model.config))


def weights_of(model: V4Model) -> dict[str, Any]:
    return {name: tensor.detach().numpy() for name, tensor in hf.export(model, names="transformers").items()}


def mask_of(length: int) -> list[bool]:
    """Two thirds supervised; of one or two tokens, none."""
    return [position % 3 != 0 for position in range(length)] if length > 2 else [False] * length


def block_of(name: str) -> str:
    """The reading's block of a module: "trunk.layers.1.mlp.gate" is in "model.layers.1", "mtp.0.block" in "mtp.0"."""
    block = name.partition(".self_attn")[0].partition(".mlp")[0]
    return block.replace("trunk.", "model.").removesuffix(".block")


@contextmanager
def choices(model: V4Model) -> Iterator[tuple[dict[str, Tensor], dict[str, Tensor]]]:
    """Picked rows and chosen experts, each [T, k] by block, of the next forward."""
    picks: dict[str, Tensor] = {}
    experts: dict[str, Tensor] = {}

    def note(block: str) -> Callable[[object, object, Picked | Routing], None]:
        def hook(_module: object, _args: object, output: Picked | Routing) -> None:
            if isinstance(output, Picked):
                picks[block] = output.picks
            else:
                experts[block] = output.experts

        return hook

    modules = [(name, module) for name, module in model.named_modules() if isinstance(module, Indexer | Router)]
    handles = [module.register_forward_hook(note(block_of(name))) for name, module in modules]
    try:
        yield picks, experts
    finally:
        for handle in handles:
            handle.remove()


def compare_values(agreement: Agreement, out: V4Output, reading: Reading, *, start: int) -> None:
    """Values of one sample whose tokens start at `start` of the pack; positions invalid for MTP included."""
    part = slice(start, start + len(reading.nll))
    heads: list[tuple[str, Any, Reading | DepthReading]] = [("", out, reading)]
    heads += [("mtp ", got, expected) for got, expected in zip(out.mtp, reading.mtp, strict=True)]
    for depth, (head, got, expected) in enumerate(heads):
        where = f"at depth {depth} of the sample at token {start}"
        pairs = {
            "logits": (got.logits, expected.logits),
            "hidden": (got.hidden, expected.hidden),
            "nll": (got.token_nll, expected.nll),
        }
        for quantity, (ours, theirs) in pairs.items():
            agreement.compare(head + quantity, ours[part], theirs, bound=SAME_FORMULAS_F64, where=where)
        if isinstance(expected, DepthReading):
            assert got.valid[part].tolist() == expected.valid.tolist(), f"valid positions {where}"


def compare_choices(
    picks: Mapping[str, Tensor], experts: Mapping[str, Tensor], reading: Reading, *, start: int, first_row: int
) -> None:
    """Picks and experts of one sample, exactly; its ratio-4 rows start at `first_row` of the pack's."""
    part = slice(start, start + len(reading.nll))
    assert (picks.keys(), experts.keys()) == (reading.picks.keys(), reading.experts.keys())
    for block, chosen in experts.items():
        got, expected = chosen[part].sort().values.tolist(), np.sort(reading.experts[block]).tolist()
        assert got == expected, f"experts of {block}, sample at token {start}"
    for block, rows in picks.items():
        windows = tuple(tuple(sorted(row - first_row for row in of if row >= 0)) for of in rows[part].tolist())
        assert windows == reading.picks[block], f"picks of {block}, sample at token {start}"


def mean(pairs: Sequence[tuple[float, int]]) -> float:
    """Of sums and counts; 0 of nothing."""
    total, count = (sum(values) for values in zip(*pairs, strict=True))
    return total / count if count else 0.0


def compare_step(agreement: Agreement, out: V4Output, readings: Sequence[Reading], model: V4Model) -> None:
    """Counts, sums and losses of a pack, made of the readings of its samples."""
    config, terms, first = model.config, out.terms, readings[0]
    main = [(reading.main_nll_sum, reading.main_count) for reading in readings]
    mtp = [
        [(depth.nll_sum, depth.count) for depth in depths]
        for depths in zip(*(reading.mtp for reading in readings), strict=True)
    ]
    balance = [
        [(reading.balance_sums[block], reading.balance_lengths[block]) for reading in readings]
        for block in first.balance_sums
    ]
    got = [*out.counts.labels, *(out.counts.tokens[config.depth(layer)] for layer in terms.balance_sums)]
    assert got == [sum(n for _, n in pairs) for pairs in (main, *mtp, *balance)]
    assert [block_of(config.block_name(layer)) for layer in terms.balance_sums] == list(first.balance_sums)
    assert [block_of(name) for name in out.router_counts] == list(first.router_counts)
    for name, counts in out.router_counts.items():
        expected = np.sum([reading.router_counts[block_of(name)] for reading in readings], axis=0)
        assert counts.tolist() == expected.tolist(), f"selections of {name}"

    kl_sum = sum(reading.kl_sum for reading in readings)
    balance_loss = config.balance_coef * sum(map(mean, balance))
    kl_loss = config.index_kl_coef * kl_sum / sum(len(reading.nll) for reading in readings)
    loss = mean(main) + config.mtp_scale / len(mtp) * sum(map(mean, mtp)) + balance_loss + kl_loss
    losses = {
        "main": (out.main_loss, mean(main)),
        **{f"mtp {k}": (out.mtp_losses[k - 1], mean(pairs)) for k, pairs in enumerate(mtp, start=1)},
        "balance": (out.balance_loss, balance_loss),
        "total": (out.loss, loss),
    }
    for name, (got_loss, expected_loss) in losses.items():
        agreement.compare("losses", got_loss, expected_loss, bound=SAME_FORMULAS_F64, where=name)
    balance_sum = sum(reading.balance_sum for reading in readings)
    agreement.compare("balance sum", sum(terms.balance_sums.values()), balance_sum, bound=SAME_FORMULAS_F64)
    agreement.compare("KL sum", terms.kl_sum, kl_sum, bound=SAME_FORMULAS_F64, floor=KL_FLOOR_NATS)
    if len(readings) == 1:
        assert loss == pytest.approx(first.loss, rel=SAME_FORMULAS_F64)


@pytest.fixture(scope="module")
def table() -> Iterator[AgreementTable]:
    table = AgreementTable()
    yield table
    print(table.text())


@pytest.mark.parametrize(("kind", "length"), CASES)
def test_one_sample_agrees(kind: str, length: int, table: AgreementTable, record_property: Record) -> None:
    model, agreement = model_of(KINDS[kind]), Agreement(kind, f"{length} tokens")
    sample, mask = sample_of(model.config, length=length), mask_of(length)
    reading = read(reading_config(model), weights_of(model), sample, mask)
    with torch.no_grad(), choices(model) as (picks, experts):
        out = model(Pack.from_samples([sample], supervised=[mask]), logits=True)
    compare_values(agreement, out, reading, start=0)
    compare_choices(picks, experts, reading, start=0, first_row=0)
    compare_step(agreement, out, [reading], model)
    table.settle(agreement, record_property)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_samples_agree_with_readings_of_each(kind: str, table: AgreementTable, record_property: Record) -> None:
    """Starts off every ratio, samples shorter than the MTP depths, padding inside and behind."""
    model, agreement = model_of(KINDS[kind]), Agreement(f"{kind} packed", "several samples")
    lengths = (5, 1, 2, 133, 8) if kind == "three_kinds" else (5, 1, 34, 2, 8, 19)
    samples = [sample_of(model.config, length=length) for length in lengths]
    masks = [mask_of(length) for length in lengths]
    pack = spread_pack(samples, masks=masks)
    with torch.no_grad(), choices(model) as (picks, experts):
        out = model(pack, logits=True)

    config, weights = reading_config(model), weights_of(model)
    readings = [read(config, weights, sample, mask) for sample, mask in zip(samples, masks, strict=True)]
    first_row = 0
    for reading, start, length in zip(readings, pack.layout.starts, lengths, strict=True):
        compare_values(agreement, out, reading, start=start)
        compare_choices(picks, experts, reading, start=start, first_row=first_row)
        first_row += length // 4
    compare_step(agreement, out, readings, model)
    table.settle(agreement, record_property)


def compare_derivative(
    agreement: Agreement,
    model: V4Model,
    *,
    of: Callable[[V4Output], Tensor],
    reading_of: Callable[[Reading], float],
    part: str,
) -> None:
    """A scalar's derivative along one random direction of the parameters of a part."""
    names = {tensor.data_ptr(): name for name, tensor in hf.export(model, names="transformers").items()}
    parameters = {names[parameter.data_ptr()]: parameter for parameter in model.parameters()}
    parameters = {name: parameter for name, parameter in parameters.items() if PARTS[part](name)}
    source = np.random.default_rng(0)
    direction = {name: source.standard_normal(parameter.shape) for name, parameter in parameters.items()}

    sample, mask = sample_of(model.config, length=18), mask_of(18)
    out = model(Pack.from_samples([sample], supervised=[mask]))
    # A parameter without a graph gets 0, and fails by its number.
    gradients = torch.autograd.grad(of(out), list(parameters.values()), allow_unused=True, materialize_grads=True)
    slopes = [
        (grad * torch.from_numpy(direction[name])).sum() for name, grad in zip(parameters, gradients, strict=True)
    ]
    # The reading differentiates values and knows nothing detached; its total leaves out the KL, which has its own test.
    config, weights = replace(reading_config(model), index_kl_coef=0.0), weights_of(model)
    expected = directional_derivative(
        config, weights, sample, direction, reading_of, step=DIFFERENCE_STEP, supervised=mask
    )
    norm = float(torch.stack([grad.square().sum() for grad in gradients]).sum().sqrt())
    agreement.compare(
        "derivatives", torch.stack(slopes).sum(), expected, bound=DIFFERENCE_BOUND, floor=norm, where=part
    )


def is_indexer(name: str) -> bool:
    return ".indexer." in name


PARTS: dict[str, Callable[[str], bool]] = {
    "embedding and LM head": lambda name: name in ("model.embed_tokens.weight", "lm_head.weight"),
    "trunk": lambda name: name.startswith("model.") and "embed" not in name and not is_indexer(name),
    "MTP": lambda name: name.startswith("mtp.") and not is_indexer(name),
    "indexers": is_indexer,
}

# No activation lies near the SwiGLU clamp, where a difference would straddle the kink.
SMOOTH = {kind: f"{kind},swiglu_limit=100.0" for kind in ("dense", "csa", "hca", "all")}


@pytest.mark.parametrize("kind", SMOOTH)
def test_gradients_of_the_loss_agree(kind: str, table: AgreementTable, record_property: Record) -> None:
    agreement = Agreement(f"{kind} derivatives", "18 tokens")
    for part in ("embedding and LM head", "trunk", "MTP"):
        compare_derivative(
            agreement,
            model_of(SMOOTH[kind]),
            of=lambda out: out.loss,
            reading_of=lambda reading: reading.loss,
            part=part,
        )
    table.settle(agreement, record_property)


@pytest.mark.parametrize("kind", ["csa", "all"])
def test_gradients_of_the_index_divergence_agree(kind: str, table: AgreementTable, record_property: Record) -> None:
    """Along the indexer's own parameters; all others get none."""
    model, agreement = model_of(SMOOTH[kind]), Agreement(f"{kind} KL derivatives", "18 tokens")
    compare_derivative(
        agreement,
        model,
        of=lambda out: out.terms.kl_sum,
        reading_of=lambda reading: reading.kl_sum,
        part="indexers",
    )
    others = [parameter for name, parameter in model.named_parameters() if not is_indexer(name)]
    out = model(Pack.from_samples([sample_of(model.config, length=18)]))
    gradients = torch.autograd.grad(out.terms.kl_sum, others, allow_unused=True)
    assert all(gradient is None or not gradient.any() for gradient in gradients)
    table.settle(agreement, record_property)
