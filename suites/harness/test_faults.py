"""The fault zoo: found by name, active where it says, gone without a trace when its context ends."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache

import pytest
import torch

import harness.faults
from harness.case import Case
from harness.catalogue import find_property
from harness.errors import UsageError
from harness.faults.a5_boundaries_joined_without_offsets import joined
from harness.faults.absent import ABSENT
from harness.faults.activity import changed_by, observed, outputs
from harness.faults.c16_grid_windows_sample_counts import counted_from_the_sample
from harness.faults.capacity import first_come
from harness.faults.d4_roll_by_unpadded_ends import rolled
from harness.faults.registry import Fault, load_faults
from harness.kinds import KINDS
from harness.properties import Observe
from harness.strata import CUT_STRATA, LAYOUT_STRATA, strata_of
from harness.subjects.protocol import Subject
from harness.subjects.v4model_one_rank import V4OneRank, build
from harness.tolerance import REORDERED_F64, relative_error
from suites.harness import fakes
from suites.quality.drawn import cases_of, values_of
from v4model import Pack, PackLayout
from v4model.exchange import Ranks
from v4model.layers.context import PackContext, context_of
from v4model.parallel.groups import Mesh
from v4model.parallel.in_process import InProcessWorld

FAULTS = load_faults()
BY_NAME = {fault.name: fault for fault in FAULTS}
MUST = "A1 A3 B1 B2 C1 C3 C16 D1 D4 D12".split()

# Samples that start off every ratio, padding inside and at the tail, more rows than the indexer picks.
LAYOUT = "7p3.5.21+40/s3"
# What these read depends on what else a rank holds: rows of its own queries or columns (C15, C17), the first token of
# the pack (D2), one token more than its halo (D6), as much room as it has tokens (F11); and D7 is a defect of one rank.
OTHER_ON_RANKS = {"C15", "C17", "D2", "D6", "D7", "F11"}

# Those of ranks do nothing on one: suites/quality/test_rank_faults_are_caught.py.
ON_ONE_RANK = [fault for fault in FAULTS if not fault.ranks]
# Whose property compares something else than what the model gives: how packs are made.
OF_DATA = [fault.name for fault in ON_ONE_RANK if find_property(fault.expected).looks_at == "data"]
every_fault = pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in ON_ONE_RANK])


def _of_case(case: Case) -> tuple[V4OneRank, Pack]:
    return build(case.v4config(), case.torch_dtype(), case.seed), case.pack(fakes.corpus())


def _subject_and_pack(kind: str, layout: str = LAYOUT) -> tuple[V4OneRank, Pack]:
    return _of_case(Case.from_token(f"{kind}/{layout}"))


@lru_cache
def _healthy(observer: Observe, case: Case) -> Mapping[str, torch.Tensor]:
    return observer(*_of_case(case))


def _faulty(fault: Fault, observer: Observe, case: Case) -> Mapping[str, torch.Tensor]:
    subject, pack = _of_case(case)
    with fault.apply(subject):
        return observer(subject, pack)


def _cases(fault: Fault, kind: str) -> Iterator[Case]:
    """The layout above where the fault can show in it, then drawn ones."""
    case = Case.from_token(f"{kind}/{LAYOUT}")
    if not fault.strata or not strata_of(case, case.pack(fakes.corpus())).isdisjoint(fault.strata):
        yield case
    yield from cases_of(fault, kind=kind)


def _where_it_shows(fault: Fault, kind: str) -> tuple[V4OneRank, Pack]:
    return _of_case(next(_cases(fault, kind)))


def test_the_zoo_holds_the_faults_that_must_be_caught() -> None:
    assert set(MUST) <= set(BY_NAME)
    assert len(BY_NAME) == len(FAULTS)


def test_every_module_named_after_a_fault_is_found() -> None:
    names = [module.name for module in pkgutil.iter_modules(harness.faults.__path__)]
    modules = [name for name in names if re.match(r"[a-g]\d+[a-z]?_", name)]
    assert len(modules) == len(FAULTS)
    for name in modules:
        module = importlib.import_module(f"harness.faults.{name}")
        assert (module.__doc__ or "").startswith(f"{module.FAULT.name}: "), f"{name} does not say which fault it is"
        assert module.FAULT.name.lower().startswith(name.split("_")[0])


@every_fault
def test_a_fault_says_what_it_is(fault: Fault) -> None:
    prop = find_property(fault.expected)
    assert set(fault.kinds) <= set(prop.kinds)
    assert fault.title
    assert fault.reference
    assert set(fault.strata) <= {*LAYOUT_STRATA, *CUT_STRATA}


@every_fault
def test_a_fault_changes_something_on_its_kinds(fault: Fault) -> None:
    observer = find_property(fault.expected).observed or outputs
    for kind in fault.kinds:
        pairs = ((_healthy(observer, case), _faulty(fault, observer, case)) for case in _cases(fault, kind))
        changes = (
            name not in faulty or not torch.equal(healthy[name], faulty[name])
            for healthy, faulty in pairs
            for name in healthy
        )
        assert any(changes), f"nothing changes on {kind}"


@every_fault
def test_a_fault_shows_nowhere_but_on_its_kinds(fault: Fault) -> None:
    for kind in sorted(set(KINDS) - set(fault.kinds)):
        case = Case.from_token(f"{kind}/{LAYOUT}")
        healthy, faulty = _healthy(outputs, case), _faulty(fault, outputs, case)
        # An offset that queries and keys share rotates both: rounding moves, nothing else does (B2).
        assert [name for name in healthy if (healthy[name] - faulty[name]).abs().max() > 1e-9] == []


def test_a_fault_that_changes_nothing_is_reported() -> None:
    @contextmanager
    def forgotten(_subject: Subject) -> Iterator[None]:
        yield

    subject, pack = _subject_and_pack("all")
    assert changed_by(replace(BY_NAME["A1"], apply=forgotten), subject, pack) == ()
    assert changed_by(replace(BY_NAME["A1"], apply=lambda _subject: nullcontext()), subject, pack) == ()


def test_a_change_is_reported_by_name() -> None:
    subject, pack = _subject_and_pack("all")
    changed = changed_by(BY_NAME["F2"], subject, pack)
    assert "sum of balance mtp.0.block" in changed
    assert "logits of depth 0" not in changed


def test_a_fault_of_data_leaves_the_model_alone_and_is_told_by_what_its_property_compares() -> None:
    subject, pack = _subject_and_pack("all")
    assert changed_by(BY_NAME["G7"], subject, pack)
    healthy = outputs(subject, pack)
    with BY_NAME["G7"].apply(subject):
        faulty = outputs(subject, pack)
    assert all(torch.equal(faulty[name], value) for name, value in healthy.items())


@every_fault
def test_a_subject_is_healthy_again_after_an_exception(fault: Fault) -> None:
    subject, pack = _where_it_shows(fault, fault.kinds[-1])
    before, attributes = observed(fault, subject, pack), _attributes(subject)

    def fail() -> None:
        with fault.apply(subject):
            subject.observe(pack)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    after = observed(fault, subject, pack)
    assert [name for name in before if not torch.equal(after[name], before[name])] == []
    assert _attributes(subject) == attributes


def _attributes(subject: V4OneRank) -> dict[str, list[str]]:
    """What hangs on each module, hooks too, in order."""
    return {
        name: [*vars(module), *module._modules, *map(str, module._forward_pre_hooks)]
        for name, module in subject.model.named_modules()
    }


@every_fault
def test_another_model_stays_healthy_meanwhile(fault: Fault) -> None:
    subject, pack = _where_it_shows(fault, fault.kinds[-1])
    other, _ = _subject_and_pack(fault.kinds[-1], LAYOUT.replace("s3", "s4"))
    before = values_of(other, pack)
    with fault.apply(subject):
        subject.observe(pack)
        assert torch.equal(values_of(other, pack), before)


def test_two_faults_can_be_planted_at_once_and_leave_in_order() -> None:
    subject, pack = _subject_and_pack("all")
    before, attributes = values_of(subject, pack), _attributes(subject)
    with BY_NAME["B7"].apply(subject), BY_NAME["F6"].apply(subject), BY_NAME["B1"].apply(subject):
        all_three = values_of(subject, pack)
    with BY_NAME["B7"].apply(subject):
        assert not torch.equal(values_of(subject, pack), all_three)
    assert torch.equal(values_of(subject, pack), before)
    assert _attributes(subject) == attributes


@pytest.mark.parametrize("name", OF_DATA)
def test_a_subject_that_packs_no_records_is_refused(name: str) -> None:
    subject = fakes.healthy(Case.from_token("all/3/s0").v4config(), torch.float64, 0)
    with pytest.raises(UsageError, match=r"got running sum; expected a subject that packs by v4model\.data"):
        BY_NAME[name].apply(subject).__enter__()


@pytest.mark.parametrize("fault", [BY_NAME["A1"], BY_NAME["B7"], BY_NAME["D12"]], ids=["A1", "B7", "D12"])
def test_a_subject_without_a_v4model_is_refused(fault: Fault) -> None:
    subject = fakes.healthy(Case.from_token("all/3/s0").v4config(), torch.float64, 0)
    with pytest.raises(UsageError, match="got running sum; expected a subject whose `model` is a V4Model"):
        fault.apply(subject).__enter__()


ALIKE_ON_RANKS = [fault for fault in ON_ONE_RANK if fault.name not in (*OTHER_ON_RANKS, *OF_DATA)]


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in ALIKE_ON_RANKS])
def test_a_fault_is_the_same_on_ranks(fault: Fault) -> None:
    """A defect in what the model knows of its pack does not depend on how the pack is cut."""
    subject, pack = _where_it_shows(fault, fault.kinds[0])
    model, total = subject.model, pack.layout.total
    with torch.no_grad(), fault.apply(subject):
        whole = model(pack, logits=True)
        parts = InProcessWorld(Mesh(cp=4)).run(lambda member: model(pack, logits=True, ranks=member.ranks))
    assert all(relative_error(part.loss, whole.loss, floor=0.0) < REORDERED_F64 for part in parts)
    for depth, expected in enumerate((whole, *whole.mtp)):
        of_ranks = [(part, *part.mtp)[depth] for part in parts]
        for name in ("logits", "token_nll"):
            joined = torch.cat([getattr(of_rank, name) for of_rank in of_ranks])[:total]
            error = relative_error(joined, getattr(expected, name), floor=0.0)
            assert error < REORDERED_F64, f"{name} of depth {depth}"


def test_rows_that_cannot_be_planted_say_why() -> None:
    assert not set(ABSENT) & set(BY_NAME)
    for name, reason in ABSENT.items():
        assert re.fullmatch(r"[A-G]\d+[a-z]?", name)
        assert reason.endswith(".")


# -- what is quiet: no logit, and of the losses the named ones at most -------------------------------------------------

QUIET = {
    "C10": "kl", "C10b": "kl", "C11": "kl", "C11b": "kl", "C12": "", "C12b": "", "C12c": "", "C13": "", "C13b": "kl",
    "D3b": "", "D6": "mtp1 mtp2", "D9": "mtp1 mtp2", "D9b": "mtp2", "D13": "balance", "D13b": "balance",
}  # fmt: skip


@pytest.mark.parametrize("name", QUIET)
def test_a_quiet_fault_moves_no_logit_and_only_its_losses(name: str) -> None:
    # Samples behind each other, so that what is rolled over an end finds another one.
    changed = changed_by(BY_NAME[name], *_subject_and_pack("all", "7p3.5.21+40/s3"))
    assert not [one for one in changed if one.startswith("logits")]
    losses = {one.removeprefix("loss ") for one in changed if one.startswith("loss ")} - {"loss"}
    assert losses == set(QUIET[name].split())


@pytest.mark.parametrize(("name", "part"), [("C14", "compressor"), ("C14b", "indexer"), ("C12c", "indexer")])
def test_a_lost_edge_is_no_change_of_a_gradient(name: str, part: str) -> None:
    subject, pack = _subject_and_pack("csa", "3.2.1/s3")
    changed = changed_by(BY_NAME[name], subject, pack)
    assert {one.split(" ")[0] for one in changed} == {"edge"}
    assert all(f".{part}." in one for one in changed)


# -- the mechanisms ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "slots", "expected"),
    [
        # [0, 5, 12] and [0, 6, 12]
        ([5, 7, 6, 6], None, (5, 1, 6, 12)),
        ([5, 7], None, (5, 2, 5)),
        # Boundaries of slots; the tail stays padding.
        ([5, 7], [6, 7], (6, 1, 6)),
        ([9], None, (9,)),
    ],
)
def test_a5_joins_the_boundaries_of_two_halves(
    lengths: list[int], slots: list[int] | None, expected: tuple[int, ...]
) -> None:
    layout = joined(PackLayout.from_lengths(lengths, slots=slots, total=30))
    assert layout.lengths == expected
    assert layout.total == 30


def test_only_so_many_choices_of_a_place_fit() -> None:
    places = torch.tensor([[0, 1], [0, 0], [1, 0]])
    fits = first_come(places, count=3, room=2)
    assert fits.tolist() == [[True, True], [True, False], [True, False]]


def _context(layout: PackLayout) -> PackContext:
    config, pack = Case.from_token("all/3/s0").v4config(), Pack(torch.arange(layout.total), layout=layout)
    return context_of(pack, config=config, ranks=Ranks.one(), dtype=torch.float64, device=torch.device("cpu"))


def test_d4_rolls_as_megatron_does() -> None:
    tokens = [11, 12, 13, 0, 21, 22, 0, 0]
    layout = PackLayout.from_lengths([3, 2], slots=[4, 4])
    source = rolled(layout, 1)
    moved = [tokens[place] if place >= 0 else 0 for place in source.tolist()]
    real = layout.real.tolist()
    # 12, 13, 0, 21, 0, 22, 0, 0 at the real tokens; 12, 13, 0, 0, 22, 0, 0, 0 is right.
    assert [token for token, is_real in zip(moved, real, strict=True) if is_real] == [12, 13, 0, 0, 22]


def test_d4_is_right_without_padding_and_with_padding_at_the_tail() -> None:
    for layout in ("13.6.27/s3", "13.6.27+60/s3"):
        subject, pack = _subject_and_pack("all", layout)
        assert changed_by(BY_NAME["D4"], subject, pack) == ()


@pytest.mark.parametrize("name", ["C1", "C2", "C16"])
def test_windows_of_the_stream_are_right_where_samples_start_on_the_grid(name: str) -> None:
    # HCA alone has ratio 8; no sample has a rest that a window could reach into.
    subject, pack = _subject_and_pack("hca", "16.32.8/s3")
    healthy = values_of(subject, pack)
    with BY_NAME[name].apply(subject):
        assert torch.equal(values_of(subject, pack), healthy)


@pytest.mark.parametrize(("start", "ahead"), [(1, 3), (2, 2), (3, 1), (4, 0)])
def test_c16_sees_the_future_up_to_the_grid_of_ratio_4(start: int, ahead: int) -> None:
    context = _context(PackLayout.from_lengths([start, 20]))
    pool = counted_from_the_sample(context, context.visibility.pools[4])
    seen = [int(pool.base[t] + pool.visible[t] - 1) for t in range(start + 3, start + 11)]
    last = [int(pool.windows.first_token[row]) + 3 for row in seen]
    assert max(token - t for token, t in zip(last, range(start + 3, start + 11), strict=True)) == ahead
