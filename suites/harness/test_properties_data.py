"""The properties of data, on this repository's packing and on one with a defect planted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor

from harness.case import Case
from harness.catalogue import find_property, properties
from harness.properties.records import Record, asked, request_of, write_chat
from harness.subjects.packs_records import Cache, Packing, PacksRecords
from harness.subjects.v4model_data import V4Data
from harness.subjects.v4model_one_rank import build
from harness.verdict import Outcome, Verdict
from harness.witness import Witness
from suites.harness import fakes
from v4model import Pack, PackLayout
from v4model.data.cache import STEPS

PACKING = "packing_keeps_every_sample"
SPELLINGS = "every_spelling_names_the_same_samples"
ONCE = "text_is_tokenised_once"
REFUSED = "nothing_supervised_is_refused"
CACHE = "cache_gives_what_was_asked"
OF_DATA = [prop.name for prop in properties() if prop.looks_at == "data"]

CASE = Case.from_token("all/5.40.9+60/s3")

Change = Callable[[list[Pack]], Sequence[Pack]]


class _Changed(V4Data):
    """Packs records as this repository does, and changes the packs."""

    def __init__(self, change: Change) -> None:
        self._change = change

    def packs_of(self, path: Path, packing: Packing, *, cache: Cache | None = None) -> Sequence[Pack]:
        return self._change(list(super().packs_of(path, packing, cache=cache)))


def check(name: str, subject: object, case: Case = CASE) -> Verdict:
    # The model behind a subject is not asked for anything.
    return find_property(name).check(subject, case, fakes.corpus())  # type: ignore[arg-type]


def witness_of(verdict: Verdict) -> Witness:
    assert verdict.outcome is Outcome.VIOLATED
    assert verdict.witness is not None
    return verdict.witness


def samples_of(pack: Pack) -> list[tuple[list[int], list[bool]]]:
    spans = zip(pack.layout.starts, pack.layout.lengths, strict=True)
    owned = [slice(start, start + length) for start, length in spans]
    return [(pack.tokens[own].tolist(), pack.supervised[own].tolist()) for own in owned]


def packed(samples: Sequence[tuple[list[int], list[bool]]], *, total: int) -> Pack:
    return Pack.from_samples([one for one, _ in samples], supervised=[flags for _, flags in samples], total=total)


def test_the_properties_of_data_are_these() -> None:
    assert sorted(OF_DATA) == sorted([PACKING, SPELLINGS, ONCE, REFUSED, CACHE])
    assert isinstance(build(CASE.v4config(), torch.float64, 0), PacksRecords)


@pytest.mark.parametrize("name", OF_DATA)
@pytest.mark.parametrize("token", ["all/1/s0", "all/5.40.9+60/s3", "all/64p3.63.65+200/s7"])
def test_this_repository_holds(name: str, token: str) -> None:
    assert check(name, V4Data(), Case.from_token(token)).outcome is Outcome.HOLDS


@pytest.mark.parametrize("name", OF_DATA)
def test_a_subject_that_packs_no_records_is_vacuous(name: str) -> None:
    verdict = check(name, fakes.healthy(CASE.v4config(), torch.float64, 0))
    assert (verdict.outcome, verdict.reason) == (Outcome.VACUOUS, "the subject packs no records")
    assert (
        find_property(name).observed(fakes.healthy(CASE.v4config(), torch.float64, 0), CASE.pack(fakes.corpus())) == {}
    )


# -- what is asked -----------------------------------------------------------------------------------------------------


def test_a_sample_by_hand() -> None:
    tokens, supervised = Record("ab", "c").sample
    assert tokens == (256, 258, 97, 98, 259, 260, 99, 257)
    assert supervised == (False,) * 6 + (True,) * 2


def test_records_have_the_lengths_of_the_case_and_its_corners() -> None:
    request = request_of((5, 40, 70), Random(0))
    window = request.packing.window
    lengths = sorted(len(record.sample[0]) for record in request.records)
    assert window == 72
    assert {7, 40, 70, 72} <= set(lengths)
    assert min(lengths) == 7
    assert sum(length < 10 for length in lengths) >= 2 * window // 9
    assert request == request_of((5, 40, 70), Random(0))


# -- packing -----------------------------------------------------------------------------------------------------------


def _without_the_last(packs: list[Pack]) -> list[Pack]:
    return packs[:-1]


def _last_one_twice(packs: list[Pack]) -> list[Pack]:
    return [*packs, packs[-1]]


def _one_a_pack(packs: list[Pack]) -> list[Pack]:
    return [packed([sample], total=pack.layout.total) for pack in packs for sample in samples_of(pack)]


def _first_two_joined(packs: list[Pack]) -> list[Pack]:
    found = []
    for pack in packs:
        (one, flags), *rest = samples_of(pack)
        if rest:
            (other, other_flags), *rest = rest
            one, flags = one + other, flags + other_flags
        found.append(packed([(one, flags), *rest], total=pack.layout.total))
    return found


def _mask_lost(packs: list[Pack]) -> list[Pack]:
    return [Pack(pack.tokens, layout=pack.layout) for pack in packs]


def _shorter_rows(packs: list[Pack]) -> list[Pack]:
    return [packed(samples_of(pack), total=pack.layout.total + 1) for pack in packs]


def _behind_a_gap(packs: list[Pack]) -> list[Pack]:
    # The pack with room for it.
    last = packs[-1]
    layout = PackLayout(last.layout.lengths, tuple(start + 1 for start in last.layout.starts), last.layout.total)
    return [*packs[:-1], Pack(last.tokens.roll(1), layout=layout, supervised=last.supervised.roll(1))]


def _refusing(_packs: list[Pack]) -> list[Pack]:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (_without_the_last, "are in no pack of a window of 64"),
        (_last_one_twice, "is no record's, or another's once more"),
        (_one_a_pack, "would fit into one"),
        (_first_two_joined, "is no record's, or another's once more"),
        (_mask_lost, "is no record's, or another's once more"),
        (_shorter_rows, "has 65 tokens, not the row's 64"),
        (_behind_a_gap, "not one behind the other"),
        (_refusing, "records that fit the window are refused"),
    ],
)
def test_packing_names_what_is_wrong(change: Change, what: str) -> None:
    witness = witness_of(check(PACKING, _Changed(change)))
    assert what in witness.what
    assert witness.sentence().startswith(f"{PACKING}: {witness.what}, by ")
    assert witness == witness_of(check(PACKING, _Changed(change)))


def test_slots_that_are_not_aligned_are_seen() -> None:
    class Dense(V4Data):
        def packs_of(self, path: Path, packing: Packing, *, cache: Cache | None = None) -> Sequence[Pack]:
            unaligned = Packing(window=packing.window, ranks=packing.ranks, seed=packing.seed)
            return super().packs_of(path, unaligned, cache=cache)

    assert "not one behind the other" in witness_of(check(PACKING, Dense())).what


# -- spellings ---------------------------------------------------------------------------------------------------------


class _Strict(V4Data):
    def layout_of_boundaries(self, cu_seqlens: Tensor, *, padded: Tensor | None, total: int) -> PackLayout:
        if len(cu_seqlens.unique()) < len(cu_seqlens):
            raise ValueError("repeated")
        return super().layout_of_boundaries(cu_seqlens, padded=padded, total=total)


class _WithoutSlots(V4Data):
    def layout_of_boundaries(self, cu_seqlens: Tensor, *, padded: Tensor | None, total: int) -> PackLayout:  # noqa: ARG002
        return super().layout_of_boundaries(cu_seqlens, padded=None, total=total)


class _ZerosAreSamples(V4Data):
    def layout_of_positions(self, position_ids: Tensor, *, padding: int | None) -> PackLayout:
        return super().layout_of_positions(position_ids, padding=padding or 0)


@pytest.mark.parametrize(
    ("subject", "spelling", "got"),
    [
        (_Strict(), "boundaries [0, 5, 45, 54, 54, 54] with 0 tokens of padding", "a refusal"),
        (_WithoutSlots(), "in slots", "3 samples of [5, 40, 9] tokens at [0, 5, 45]"),
        (_ZerosAreSamples(), "zeros not declared", "samples of [5, 40, 9, 1"),
    ],
)
def test_a_spelling_that_is_misread_is_named(subject: V4Data, spelling: str, got: str) -> None:
    witness = witness_of(check(SPELLINGS, subject))
    assert spelling in witness.what
    assert witness.got is not None
    assert got in witness.got


# -- text --------------------------------------------------------------------------------------------------------------


def _with_bos_inside(packs: list[Pack]) -> list[Pack]:
    tokens = packs[0].tokens.clone()
    tokens[3] = tokens[0]
    return [Pack(tokens, layout=packs[0].layout, supervised=packs[0].supervised), *packs[1:]]


def test_a_second_bos_is_counted() -> None:
    witness = witness_of(check(ONCE, _Changed(_with_bos_inside)))
    assert "the tokenizer bytes gives BOS 2 times among" in witness.what


class _Gullible(V4Data):
    """Leaves out what it cannot read."""

    def packs_of(self, path: Path, packing: Packing, *, cache: Cache | None = None) -> Sequence[Pack]:
        try:
            return super().packs_of(path, packing, cache=cache)
        except ValueError:
            return []


def test_a_text_with_markers_in_it_must_not_be_taken() -> None:
    assert "is taken as text" in witness_of(check(ONCE, _Gullible())).what


def test_a_file_of_another_schema_must_not_be_taken() -> None:
    witness = witness_of(check(REFUSED, _Gullible()))
    assert witness.what == "a record of conversations with from and value is taken"
    assert witness.got == "packs of the others"


# -- cache -------------------------------------------------------------------------------------------------------------


class _Remembering(V4Data):
    """Gives what was built first for a window, a tokenizer and a name."""

    def __init__(self) -> None:
        self._known: dict[object, Sequence[Pack]] = {}

    def packs_of(self, path: Path, packing: Packing, *, cache: Cache | None = None) -> Sequence[Pack]:
        if cache is None:
            return super().packs_of(path, packing)
        key = (path, packing.window, packing.align, packing.ranks, packing.tokenizer)
        return self._known.setdefault(key, super().packs_of(path, packing))


def test_an_answer_to_another_question_is_named() -> None:
    assert witness_of(check(CACHE, _Remembering())).what == "the cache gives other packs for another seed"


def test_a_builder_tells_its_steps_and_machines_have_locks_of_their_own(tmp_path: Path) -> None:
    request = request_of((20,), Random(0))
    path = write_chat(tmp_path / "records.jsonl", [record.chat for record in request.records])
    steps: list[str] = []
    for machine in ("one", "two"):
        answer = asked(
            V4Data(), path, request.packing, cache=Cache(folder=tmp_path / "c", machine=machine, step=steps.append)
        )
        assert torch.equal(answer.table, asked(V4Data(), path, request.packing).table)
    # The second one found the entry.
    assert steps == list(STEPS)
    other = Packing(window=request.packing.window + 8)
    asked(V4Data(), path, other, cache=Cache(folder=tmp_path / "c", machine="two"))
    assert {found.name for found in tmp_path.glob("c-locks-of-*")} == {"c-locks-of-one", "c-locks-of-two"}


def test_a_refusal_does_not_name_the_folder(tmp_path: Path) -> None:
    answer = asked(V4Data(), write_chat(tmp_path / "records.jsonl", [{}]), Packing(window=64))
    assert answer.refusal.startswith(
        "DataError: got no keys; expected a key 'messages'; where: records.jsonl, record 1"
    )
