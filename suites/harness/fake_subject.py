"""A packed model of a few dozen lines with a switch for every defect: what the properties are proved on.

It has what the properties look at, and nothing else: a local window, pooled windows of 4 tokens, a table looked up by
token id, two MTP depths, masked losses. Everything is read by gathering rows, so nothing unseen is ever multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from harness.subjects.protocol import Depth, Observation, SubjectFactory
from v4model import Pack, PackLayout, V4Config

WINDOW = 3
RATIO = 4
WIDTH = 6
DEPTHS = 2

DEFECTS = (
    "local window clamped at the stream's start",
    "window in progress visible",
    "windows cut on the stream",
    "absent rows clamped and multiplied by 0",
    "table read by the neighbour's id",
    "gradient added to the neighbour",
    "positions counted along the stream",
    "MTP embedding rolled over the sample's end",
    "label rolled over the sample's end",
    "label of depth 1 at every depth",
    "mask of the query's own token",
    "padding in the count",
    "padding not zeroed",
    "padding multiplied by 0",
    "padding attended",
    "mean of means",
    "KL left out of the total",
    "no window, no gradient",
    "nothing supervised divides by 0",
)


class FakeModel:
    """Healthy without defects; `defects` are planted by name."""

    def __init__(self, config: V4Config, dtype: torch.dtype, seed: int, *, defects: frozenset[str]) -> None:
        unknown = defects - set(DEFECTS)
        assert not unknown, f"got defects {unknown}; expected some of DEFECTS"
        self.name = "fake model"
        self.config = config
        self._defects = defects
        generator = torch.Generator().manual_seed(seed)
        shapes = {"embedding": (config.vocab_size, WIDTH), "by_id": (config.vocab_size, WIDTH), "key": (WIDTH, WIDTH)}
        shapes |= {"pool": (WIDTH, WIDTH), "join": (WIDTH, WIDTH), "head": (WIDTH, config.vocab_size)}
        self._weights = {
            name: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
            for name, shape in shapes.items()
        }

    def has(self, defect: str) -> bool:
        """Whether a defect is planted."""
        assert defect in DEFECTS, defect
        return defect in self._defects

    def parameters(self) -> Mapping[str, Tensor]:
        """All weights by name."""
        return self._weights

    def embeddings(self, pack: Pack) -> Tensor:
        """[T, 6], 0 at padding."""
        ids = torch.where(pack.layout.real, pack.tokens, 0)
        return self._at_real(self._weights["embedding"][ids], pack.layout).detach()

    def observe(self, pack: Pack, *, embeddings: Tensor | None = None) -> Observation:
        """Trunk and two MTP depths; the logits of depth k come from its own block on those before."""
        layout = pack.layout
        ids = pack.tokens if self.has("padding not zeroed") else torch.where(layout.real, pack.tokens, 0)
        ids = ids.clamp(0, self.config.vocab_size - 1)
        embedded = self._weights["embedding"][ids] if embeddings is None else embeddings
        embedded = self._at_real(embedded, layout)
        x = self._block(embedded + self._by_id(ids, layout), layout)
        hiddens = [x]
        for depth in range(1, DEPTHS + 1):
            x = self._block(x + gather(embedded, self._ahead(layout, depth)) @ self._weights["join"], layout)
            hiddens.append(x)
        return self._observation([self._at_real(x @ self._weights["head"], layout) for x in hiddens], pack)

    # -- parts -------------------------------------------------------------------------------------------------------

    def _at_real(self, x: Tensor, layout: PackLayout) -> Tensor:
        if self.has("padding not zeroed"):
            return x
        if self.has("padding multiplied by 0"):
            return x * layout.real[:, None]
        return torch.where(layout.real[:, None], x, 0.0)

    def _by_id(self, ids: Tensor, layout: PackLayout) -> Tensor:
        if self.has("table read by the neighbour's id"):
            ids = torch.cat([ids[:1], ids[:-1]])
        rows = torch.where(layout.real[:, None], self._weights["by_id"][ids], 0.0)
        counted = torch.arange(layout.total) if self.has("positions counted along the stream") else layout.position
        return rows * torch.cos(counted)[:, None].to(rows.dtype)

    def _ahead(self, layout: PackLayout, depth: int) -> Tensor:
        if self.has("MTP embedding rolled over the sample's end"):
            token = torch.arange(layout.total) + depth
            return torch.where(layout.real & (token < layout.total), token, -1)
        return layout.ahead(depth)

    def _block(self, x: Tensor, layout: PackLayout) -> Tensor:
        """Softmax attention over local tokens and pooled windows; keys are values."""
        windows = self._windows(layout)
        if windows or not self.has("no window, no gradient"):
            slots = torch.tensor(windows, dtype=torch.int64).reshape(-1, RATIO)
            pooled = torch.tanh(gather(x, slots).mean(1) @ self._weights["pool"])
        else:
            pooled = x.new_zeros(0, WIDTH)
        rows = self._rows(layout, windows)
        if self.has("gradient added to the neighbour"):
            x = _GradientToTheTokenBefore.apply(x)  # type: ignore[no-untyped-call]
        keys = self._gather_keys(torch.cat([x @ self._weights["key"], pooled]), rows)
        scores = torch.einsum("td,tcd->tc", x, keys)
        weight = torch.softmax(torch.where(rows >= 0, scores, -1e9), dim=1)
        return x + torch.tanh(torch.einsum("tc,tcd->td", torch.where(rows >= 0, weight, 0.0), keys))

    def _gather_keys(self, table: Tensor, rows: Tensor) -> Tensor:
        if self.has("absent rows clamped and multiplied by 0"):
            return table[rows.clamp_min(0)] * (rows >= 0)[..., None]
        return gather(table, rows)

    def _windows(self, layout: PackLayout) -> list[list[int]]:
        """Tokens of each complete window."""
        if self.has("windows cut on the stream"):
            return [list(range(first, first + RATIO)) for first in range(0, layout.total - RATIO + 1, RATIO)]
        return [
            list(range(first, first + RATIO))
            for start, length in zip(layout.starts, layout.lengths, strict=True)
            for first in range(start, start + length - RATIO + 1, RATIO)
        ]

    def _rows(self, layout: PackLayout, windows: list[list[int]]) -> Tensor:
        """[T, C] rows of the keys (tokens, then windows) that each token sees, -1 where none."""
        seen: list[list[int]] = []
        for token in range(layout.total):
            if not layout.real[token]:
                seen.append([])
                continue
            start = token - int(layout.position[token])
            first = 0 if self.has("local window clamped at the stream's start") else start
            if self.has("padding attended") and start and not layout.real[start - 1]:
                first = start - 1
            local = list(range(max(first, token - WINDOW + 1), token + 1))
            end = int(layout.lengths[int(layout.sample[token])]) + start
            reach = token + RATIO - 1 if self.has("window in progress visible") else token
            pooled = [
                layout.total + row
                for row, window in enumerate(windows)
                if window[-1] <= reach and start <= window[-1] and window[0] < end
            ]
            seen.append(local + pooled)
        widest = max(map(len, seen))
        return torch.tensor([row + [-1] * (widest - len(row)) for row in seen])

    # -- losses ------------------------------------------------------------------------------------------------------

    def _observation(self, logits: list[Tensor], pack: Pack) -> Observation:
        layout = pack.layout
        depths, sums, counts, losses = [], {}, {}, {}
        for depth, values in enumerate(logits):
            source = self._label_source(layout, depth)
            labels = pack.tokens[source.clamp_min(0)].clamp(0, self.config.vocab_size - 1)
            nll = -torch.log_softmax(values, dim=1).gather(1, labels[:, None])[:, 0]
            nll = torch.where(source >= 0, nll, 0.0)
            mask = pack.supervised if self.has("mask of the query's own token") else pack.supervised[source]
            mask = mask & (source >= 0)
            name = f"mtp{depth}" if depth else "main"
            sums[name] = torch.where(mask, nll, 0.0).sum()
            counts[name] = float(layout.total if self.has("padding in the count") else mask.sum())
            losses[name] = sums[name] / (counts[name] or (0 if self.has("nothing supervised divides by 0") else 1))
            if self.has("mean of means"):
                losses[name] = _mean_of_means(nll, mask, layout)
            depths.append(Depth(values, nll, layout.ahead(depth) >= 0))
        # A router with nothing to balance: the configuration has one.
        sums["balance fake"], counts["balance fake"] = torch.zeros((), dtype=logits[0].dtype), 0.0
        sums["kl"] = torch.stack([values.square().mean(1).sum() for values in logits]).sum()
        counts["kl"] = float(layout.real_tokens)
        losses["kl"] = self.config.index_kl_coef * sums["kl"] / max(counts["kl"], 1)
        losses["balance"] = torch.zeros(())
        total: Any = losses["main"] + self.config.mtp_scale / DEPTHS * sum(losses[f"mtp{k + 1}"] for k in range(DEPTHS))
        losses["loss"] = total if self.has("KL left out of the total") else total + losses["kl"]
        return Observation(tuple(depths), sums, counts, losses)

    def _label_source(self, layout: PackLayout, depth: int) -> Tensor:
        if self.has("label of depth 1 at every depth"):
            depth = min(depth, 1)
        if self.has("label rolled over the sample's end"):
            token = torch.arange(layout.total) + depth + 1
            return torch.where(layout.real & (token < layout.total), token, -1)
        return layout.ahead(depth + 1)


class _GradientToTheTokenBefore(torch.autograd.Function):
    """The value as it is; the gradient also goes one token back, to a neighbour's where a sample starts."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] + torch.cat([grads[0][1:], torch.zeros_like(grads[0][:1])])


def gather(x: Tensor, rows: Tensor) -> Tensor:
    """x[rows], zeros where a row is -1."""
    padded = torch.cat([x, x.new_zeros(1, *x.shape[1:])])
    return padded[torch.where(rows >= 0, rows, len(x))]


def _mean_of_means(nll: Tensor, mask: Tensor, layout: PackLayout) -> Tensor:
    parts = [(layout.sample == sample) & mask for sample in range(layout.num_samples)]
    return torch.stack([torch.where(part, nll, 0.0).sum() / max(int(part.sum()), 1) for part in parts]).mean()


def with_defects(*defects: str) -> SubjectFactory:
    """A factory of models with these defects."""

    def build(config: V4Config, dtype: torch.dtype, seed: int) -> FakeModel:
        return FakeModel(config, dtype, seed, defects=frozenset(defects))

    return build
