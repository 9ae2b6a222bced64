"""Recipe: every choice between samples and packs in one frozen value, and the key of what comes out."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from typing import Literal, get_args

from v4model.data.tokenizer import TEMPLATE
from v4model.errors import DataError

FORMAT = 1
"""Version of the packs on disk; raise it whenever the same recipe gives other content."""

Mode = Literal["best-fit", "sequential", "padded"]
TooLong = Literal["error", "truncate", "split"]
Unsupervised = Literal["error", "drop"]
_CHOICES = {"mode": get_args(Mode), "too_long": get_args(TooLong), "unsupervised": get_args(Unsupervised)}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How samples become packs.

    Args:
        window: tokens a pack has room for.
        mode: `best-fit` fills packs best (decreasing lengths), `sequential` keeps the order of the records, `padded`
            gives each sample a row of its own (BSHD).
        align: every sample's slot is a multiple of so many tokens.
        ranks: context-parallel ranks that a pack is cut into; its row is padded to a multiple of them.
        seed: changes which of equally long samples stand together, and their order in a pack.
        too_long: of a sample longer than the window: refuse it, keep its first `window` tokens, or cut it into samples
            of at most `window` tokens (the first token of each further one is nobody's label).
        unsupervised: of a sample, or a piece of one, in which nothing is learned: refuse it, or drop and count it.

    Raises:
        DataError: a number out of range, or an unknown name.
    """

    window: int
    mode: Mode = "best-fit"
    align: int = 1
    ranks: int = 1
    seed: int = 0
    too_long: TooLong = "error"
    unsupervised: Unsupervised = "error"

    def __post_init__(self) -> None:
        # One token has nothing to predict, so nothing could be learned in a window of one.
        for name, least in (("window", 2), ("align", 1), ("ranks", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise DataError(got=f"{name} {getattr(self, name)}", expected=f"at least {least}", where="recipe")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                expected = f"one of {', '.join(known)}"
                raise DataError(got=f"{name} {getattr(self, name)!r}", expected=expected, where="recipe")
        if self.window % self.align:
            got = f"window {self.window} with align {self.align}"
            raise DataError(got=got, expected="a window that is a multiple of align", where="recipe")

    @property
    def row_tokens(self) -> int:
        """Tokens of a pack's row: the window, padded to a multiple of the ranks."""
        return -(-self.window // self.ranks) * self.ranks

    def key(self, *, source_digest: str, tokenizer_digest: str) -> str:
        """sha256 over everything that changes the packs; ranks count by the row that they ask for."""
        choices = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "ranks"}
        content = choices | {
            "format": FORMAT,
            "row_tokens": self.row_tokens,
            "source": source_digest,
            "template": TEMPLATE,
            "tokenizer": tokenizer_digest,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
