"""What a subject gives nothing of, though the configuration has it: it may be violated by the rest, and cannot hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from harness.subjects.support import BALANCE, CSA_RATIO, KL

if TYPE_CHECKING:
    from harness.subjects.protocol import Observation
    from v4model import V4Config


def note_what_is_missing(seen: Observation, config: V4Config) -> None:
    """Notes a depth or a term that the configuration has and the observation lacks.

    What properties compare is what both runs give, so a depth that neither gives would go unseen. What is there may
    still violate one; but it cannot hold, see `missing_is_noted`.
    """
    depths = config.num_nextn_predict_layers
    if len(seen.depths) != depths + 1:
        _note(f"it gives logits of {len(seen.depths)} depths, the configuration has {depths + 1}")
    terms = {name.split(" ", 1)[0] for name in seen.sums}
    wanted = ["main", *(f"mtp{depth}" for depth in range(1, depths + 1))]
    if config.balance_coef and depths + config.num_hidden_layers > config.num_hash_layers:
        wanted.append(BALANCE)
    if config.index_kl_coef and CSA_RATIO in config.ratios:
        wanted.append(KL)
    missing = [name for name in wanted if name not in terms]
    if missing:
        _note(f"it gives no sum of {' and '.join(missing)}, which the configuration has")


_missing: ContextVar[list[str] | None] = ContextVar("missing", default=None)


@contextmanager
def missing_is_noted() -> Iterator[list[str]]:
    """Within, whatever a subject is found to give nothing of is added to the list."""
    noted: list[str] = []
    token = _missing.set(noted)
    try:
        yield noted
    finally:
        _missing.reset(token)


def _note(what: str) -> None:
    noted = _missing.get()
    if noted is not None:
        noted.append(what)
