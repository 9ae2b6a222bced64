"""A token's embedding is the product of a row of zeros with one 1 and the table."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional as F

from harness.rewrites.registry import Ran, Rewrite, rewritten
from v4model.layers.context import PackContext
from v4model.model.embedding import Embedding, at_real_tokens

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject


def _embed(embedding: Embedding, context: PackContext) -> Tensor:
    one_hot = F.one_hot(context.tokens, embedding.weight.shape[0]).to(embedding.weight.dtype)
    return at_real_tokens(one_hot @ embedding.weight, context=context)


def _apply(subject: Subject) -> AbstractContextManager[Ran]:
    return rewritten(subject, (Embedding, "forward", _embed))


REWRITE = Rewrite(
    name="embedding_by_one_hot",
    title="embeddings are a product with rows of one 1",
    apply=_apply,
)
