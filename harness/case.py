"""One case: configuration, layout, seed and dtype, with a token that replays it anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness import tokens
from harness.errors import CaseError
from harness.kinds import check_text, config_from_text, kind_of

if TYPE_CHECKING:
    import torch

    from harness.corpus import Corpus
    from v4model import Pack, PackLayout, V4Config

SCHEMA_VERSION = 1
DTYPES = ("float64", "float32", "bfloat16")
MAX_TOKENS = 1 << 22
"""Tokens of one case at most, so that a mistyped token cannot ask for all memory."""

MOST_RANKS = 64

_FIELDS = ("config", "lengths", "slots", "total", "seed", "dtype", "ranks", "processes")


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a property is checked on; everything else follows from it and the corpus.

    config: a named configuration, with changes ("all", "csa,index_topk=2"). lengths: tokens of each sample. slots:
    tokens from each sample's start to the next one's (its length and the padding behind it), None without interior
    padding; equal to lengths is stored as None. total: T, tail padding included. seed draws text, weights and
    perturbations. ranks: context-parallel ranks that the subject runs on, simulated in one process or, with
    `processes`, on gloo; None for the subject as it is.

    Raises CaseError, saying got / expected / where.
    """

    config: str
    lengths: tuple[int, ...]
    slots: tuple[int, ...] | None = None
    total: int
    seed: int
    dtype: str = "float64"
    ranks: int | None = None
    processes: bool = False

    def __post_init__(self) -> None:
        check_text(self.config)
        if not self.lengths:
            raise CaseError(got="no sample", expected="at least one", where="the case's lengths")
        for index, length in enumerate(self.lengths):
            if length < 1:
                raise CaseError(got=f"{length} tokens", expected="at least 1", where=f"sample {index} of the case")
        if self.slots is not None:
            self._check_slots(self.slots)
        used = sum(self.lengths if self.slots is None else self.slots)
        if not used <= self.total <= MAX_TOKENS:
            raise CaseError(
                got=f"total {self.total}",
                expected=f"the {used} tokens of samples and slots, up to {MAX_TOKENS}",
                where="the case's total",
            )
        if not 0 <= self.seed < 1 << 63:
            raise CaseError(got=f"seed {self.seed}", expected="0 to 2**63 - 1", where="the case's seed")
        if self.dtype not in DTYPES:
            raise CaseError(got=f"dtype {self.dtype!r}", expected=" or ".join(DTYPES), where="the case's dtype")
        if self.ranks is None and self.processes:
            raise CaseError(got="processes without ranks", expected="a number of ranks", where="the case's ranks")
        if self.ranks is not None and not 1 <= self.ranks <= MOST_RANKS:
            raise CaseError(got=f"{self.ranks} ranks", expected=f"1 to {MOST_RANKS}", where="the case's ranks")

    def _check_slots(self, slots: tuple[int, ...]) -> None:
        if len(slots) != len(self.lengths):
            raise CaseError(got=f"{len(slots)} slots", expected=f"{len(self.lengths)}", where="the case's slots")
        for index, (slot, length) in enumerate(zip(slots, self.lengths, strict=True)):
            if slot < length:
                raise CaseError(
                    got=f"slot of {slot} tokens", expected=f"at least {length}", where=f"sample {index} of the case"
                )
        if slots == self.lengths:
            object.__setattr__(self, "slots", None)

    @property
    def kind(self) -> str:
        """The named configuration without its changes."""
        return kind_of(self.config)

    def v4config(self) -> V4Config:
        """The model's configuration; raises CaseError if the changes do not fit V4Config."""
        return config_from_text(self.config)

    def torch_dtype(self) -> torch.dtype:
        """The dtype as torch names it."""
        import torch

        return {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}[self.dtype]

    def layout(self) -> PackLayout:
        """The layout of the pack, T = total."""
        from v4model import PackLayout

        return PackLayout.from_lengths(self.lengths, total=self.total, slots=self.slots)

    def pack(self, corpus: Corpus) -> Pack:
        """The pack [T]: real text chosen by the seed, ids folded to the model's vocabulary.

        Supervised tokens are the text's answer tokens. Padding holds the corpus's most frequent id.
        """
        import torch

        from v4model import Pack

        vocab_size = self.v4config().vocab_size
        ids = [corpus.frequent_token % vocab_size] * self.total
        flags = [False] * self.total
        layout = self.layout()
        for index, (start, length) in enumerate(zip(layout.starts, self.lengths, strict=True)):
            text, supervised = corpus.text(self.seed, index, length=length)
            ids[start : start + length] = [token % vocab_size for token in text]
            flags[start : start + length] = supervised
        return Pack(
            torch.tensor(ids, dtype=torch.int64), layout=layout, supervised=torch.tensor(flags, dtype=torch.bool)
        )

    def token(self) -> str:
        """The replay token, `all/5.33.17+64/s123`; `harness.tokens` tells how to read it."""
        paddings = [0] * len(self.lengths)
        if self.slots is not None:
            paddings = [slot - length for slot, length in zip(self.slots, self.lengths, strict=True)]
        tail = "" if self.total == sum(self.lengths) + sum(paddings) else f"+{self.total}"
        suffix = "" if self.dtype == "float64" else f"/{self.dtype}"
        model = self.config if self.ranks is None else f"{self.config}@{self.ranks}{'p' if self.processes else ''}"
        room = tokens.LONGEST - len(model) - len(tail) - len(f"//s{self.seed}") - len(suffix)
        layout = tokens.write_samples(self.lengths, paddings, room=room)
        return f"{model}/{layout}{tail}/s{self.seed}{suffix}"

    @staticmethod
    def from_token(text: str) -> Case:
        """The case that `token` was taken from; raises CaseError for a malformed token."""
        parts = tokens.split(text)
        lengths, paddings = tokens.read_samples(parts.samples)
        slots = tuple(length + padding for length, padding in zip(lengths, paddings, strict=True))
        return Case(
            config=parts.config,
            lengths=lengths,
            slots=slots,
            total=sum(slots) if parts.total is None else parts.total,
            seed=parts.seed,
            dtype=parts.dtype or "float64",
            ranks=parts.ranks,
            processes=parts.processes,
        )

    def to_json(self) -> dict[str, Any]:
        """The case as plain values, with the schema's version."""
        return {
            "schema_version": SCHEMA_VERSION,
            "config": self.config,
            "lengths": list(self.lengths),
            "slots": None if self.slots is None else list(self.slots),
            "total": self.total,
            "seed": self.seed,
            "dtype": self.dtype,
            "ranks": self.ranks,
            "processes": self.processes,
        }

    @staticmethod
    def from_json(data: Any) -> Case:
        """Read what `to_json` wrote; raises CaseError for another version or a malformed value."""
        if not isinstance(data, Mapping) or set(data) != {"schema_version", *_FIELDS}:
            raise CaseError(
                got=f"keys {', '.join(map(str, data))}" if isinstance(data, Mapping) else type(data).__name__,
                expected=f"an object with schema_version, {', '.join(_FIELDS)}",
                where="the case's JSON",
            )
        if data["schema_version"] != SCHEMA_VERSION:
            raise CaseError(
                got=f"schema_version {data['schema_version']!r}", expected=f"{SCHEMA_VERSION}", where="the case's JSON"
            )
        return Case(
            config=_text(data, "config"),
            lengths=_numbers(data, "lengths"),
            slots=None if data["slots"] is None else _numbers(data, "slots"),
            total=_number(data["total"], "total"),
            seed=_number(data["seed"], "seed"),
            dtype=_text(data, "dtype"),
            ranks=None if data["ranks"] is None else _number(data["ranks"], "ranks"),
            processes=_flag(data["processes"], "processes"),
        )


def _number(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise CaseError(got=f"{name} {value!r}", expected="a whole number", where="the case's JSON")
    return value


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise CaseError(got=f"{name} {value!r}", expected="true or false", where="the case's JSON")
    return value


def _numbers(data: Mapping[str, Any], name: str) -> tuple[int, ...]:
    if not isinstance(data[name], list):
        raise CaseError(got=f"{name} {data[name]!r}", expected="a list of whole numbers", where="the case's JSON")
    return tuple(_number(value, name) for value in data[name])


def _text(data: Mapping[str, Any], name: str) -> str:
    if not isinstance(data[name], str):
        raise CaseError(got=f"{name} {data[name]!r}", expected="a text", where="the case's JSON")
    return str(data[name])
