"""Linear cross entropy in chunks against the plain form, and the memory it must not take."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from suites.v4model.support import BF16, FP32, leaf, randn, relative_error
from v4model.ops.ce import linear_cross_entropy

TOKENS, WIDTH, VOCAB = 23, 6, 37


def some_labels() -> torch.Tensor:
    labels = torch.randint(VOCAB, (TOKENS,), generator=torch.Generator().manual_seed(4))
    labels[[0, 7, 22]] = -1
    labels[3:5] = torch.tensor([0, VOCAB - 1])
    return labels


def plain(hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(hidden @ weight.T, labels, ignore_index=-1, reduction="none")


@pytest.mark.parametrize("chunk_tokens", [1, 2, 7, 22, 23, 24, 1000])
def test_equals_the_plain_form_for_any_chunk(chunk_tokens: int) -> None:
    hidden, weight, labels = leaf(TOKENS, WIDTH), leaf(VOCAB, WIDTH, seed=1), some_labels()
    found = linear_cross_entropy(hidden, weight, labels=labels, chunk_tokens=chunk_tokens)
    expected = plain(hidden, weight, labels)
    assert relative_error(found, expected) < 1e-14
    assert not found[labels < 0].any()
    upstream = randn(TOKENS, seed=2)
    grads = torch.autograd.grad(found, [hidden, weight], upstream)
    for grad, slow in zip(grads, torch.autograd.grad(expected, [hidden, weight], upstream), strict=True):
        assert relative_error(grad, slow) < 1e-14
    assert not grads[0][labels < 0].any()


def test_gradcheck() -> None:
    labels = torch.tensor([2, -1, 0, 4, 1])
    torch.autograd.gradcheck(
        lambda h, w: linear_cross_entropy(h, w, labels=labels, chunk_tokens=2), (leaf(5, 3), leaf(5, 3, seed=1))
    )


def test_no_label_at_all() -> None:
    hidden, weight = leaf(TOKENS, WIDTH), leaf(VOCAB, WIDTH, seed=1)
    found = linear_cross_entropy(hidden, weight, labels=torch.full((TOKENS,), -1), chunk_tokens=5)
    assert not found.any()
    assert not any(grad.any() for grad in torch.autograd.grad(found.sum(), [hidden, weight]))


def test_large_logits_do_not_overflow() -> None:
    hidden, weight = leaf(TOKENS, WIDTH, dtype=torch.float32), leaf(VOCAB, WIDTH, seed=1, dtype=torch.float32)
    found = linear_cross_entropy(hidden * 1e4, weight, labels=some_labels(), chunk_tokens=5)
    assert found.isfinite().all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(found.sum(), [hidden, weight]))


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, FP32), (torch.bfloat16, BF16)])
def test_low_precision_rounds_logits_and_nothing_more(dtype: torch.dtype, rounding: float) -> None:
    hidden, weight = leaf(TOKENS, WIDTH).detach().to(dtype), leaf(VOCAB, WIDTH, seed=1).detach().to(dtype)
    labels = some_labels()
    inputs = [hidden.requires_grad_(), weight.requires_grad_()]
    found = linear_cross_entropy(*inputs, labels=labels, chunk_tokens=5)
    assert found.dtype == torch.float32
    exact_inputs = [x.detach().double().requires_grad_() for x in inputs]
    exact = plain(*exact_inputs, labels)
    # nll = logsumexp - logit: each moves by at most the rounding of the largest logit (float32 sums of 37 besides).
    largest = float((exact_inputs[0] @ exact_inputs[1].T).abs().max().detach())
    assert float((found.double() - exact).abs().max().detach()) <= 2 * largest * rounding + 64 * FP32 * largest
    grads = torch.autograd.grad(found.sum(), inputs)
    for grad, expected in zip(grads, torch.autograd.grad(exact.sum(), exact_inputs), strict=True):
        assert grad.dtype == dtype
        # A probability moves by 2 x that; it is rounded, and so is the product.
        assert relative_error(grad.double(), expected) < (4 * largest + 2) * rounding


class LargestTensor(TorchDispatchMode):
    """Records the most elements that any operation returned, forward and backward."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.numel())
        return result


@pytest.mark.parametrize("chunk_tokens", [8, 64])
def test_logits_of_all_tokens_never_exist_at_once(chunk_tokens: int) -> None:
    tokens, width, vocab = 512, 2, 1000
    hidden, weight = leaf(tokens, width), leaf(vocab, width, seed=1)
    labels = torch.arange(tokens)
    with LargestTensor() as seen:
        linear_cross_entropy(hidden, weight, labels=labels, chunk_tokens=chunk_tokens).sum().backward()
    assert seen.largest == chunk_tokens * vocab  # and not tokens * vocab
    with LargestTensor() as seen:
        plain(hidden, weight, labels).sum().backward()
    assert seen.largest == tokens * vocab, "the measure itself sees what it must"
