"""Configurations of cases, as the texts that `harness.kinds` reads."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st

from harness.kinds import config_from_text

_MOST_CHANGES = 2

# What else a size may be, the simplest first. Every value of a row stands for a way to go wrong: a window that is no
# multiple of the ratio, fewer or more picks than rows, ties (one index head), streams and experts of another number.
_SIZES = {
    "sliding_window": (5, 12),
    "index_topk": (1, 2, 64),
    "index_n_heads": (1,),
    "hc_mult": (1, 2, 4),
    "n_routed_experts": (4, 12),
    "num_experts_per_tok": (1, 3),
    "num_hash_layers": (0, 2),
    "attention_block_tokens": (16,),
}
_HCA_RATIOS = (6, 12)
_MTP_DEPTHS = (1, 0, 3)


def configs(kind: str) -> st.SearchStrategy[str]:
    """Configuration texts of one named kind ("all", "dense", "csa", "hca"); raises CaseError for another name.

    The named configuration in four of ten cases, else with one or two sizes changed ("csa,index_topk=2"). Shrinks
    towards the named one.
    """
    options = [st.sampled_from(values) for values in _changes(kind).values()]
    some = st.lists(
        st.one_of(options), min_size=1, max_size=_MOST_CHANGES, unique_by=lambda change: change.split("=")[0]
    )
    changes = st.integers(0, 9).flatmap(lambda number: some if number >= 4 else st.just([]))
    return changes.map(lambda chosen: ",".join((kind, *sorted(chosen))))


def _changed(change: str) -> str:
    return change.split("=", 1)[0]


def _changes(kind: str) -> dict[str, tuple[str, ...]]:
    """Changes to draw from, by what they change; those of one size exclude each other."""
    plain = config_from_text(kind)
    has_indexer = 4 in plain.ratios
    changes = {
        name: tuple(f"{name}={value}" for value in values)
        for name, values in _SIZES.items()
        if has_indexer or not name.startswith("index_")
    }
    changes["shape"] = tuple(_shapes(plain.compress_ratios, layers=plain.num_hidden_layers))
    return changes


def _shapes(ratios: tuple[int, ...], *, layers: int) -> Iterator[str]:
    """Other MTP depths and other HCA ratios; both are told by the ratios of all blocks."""
    for depth in _MTP_DEPTHS:
        # Depths beyond the named ones repeat the first MTP block's kind.
        blocks = (*ratios, *(ratios[layers:] * 2))[: layers + depth]
        yield f"compress_ratios={':'.join(map(str, blocks))},num_nextn_predict_layers={depth}"
    for ratio in _HCA_RATIOS:
        if any(old not in (0, 4) for old in ratios):
            yield f"compress_ratios={':'.join(str(old if old in (0, 4) else ratio) for old in ratios)}"
