"""Exchange: each verb and its adjoint against one process that has all rows, bytes counted, disagreements named."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from suites.v4model.support import leaf, randn, relative_error
from v4model.exchange import Exchange, RankError, Ranks, Request
from v4model.pack import PackLayout
from v4model.pack.shard import shard_of
from v4model.parallel.groups import Member, Mesh
from v4model.parallel.in_process import InProcessWorld

WIDTH, F64 = 3, 8  # columns, bytes of a float64
EVERY_NUMBER_OF_RANKS = pytest.mark.parametrize("ranks", [1, 2, 4, 8])
UNEVEN = {
    "uneven": [3, 1, 4, 2],
    "zero in the middle": [2, 0, 0, 5],
    "one rank has all": [0, 7, 0, 0],
    "nothing": [0, 0, 0, 0],
}
every_count = pytest.mark.parametrize("counts", UNEVEN.values(), ids=UNEVEN.keys())

Verb = Callable[[Exchange, Tensor], Tensor]


def on_ranks(shards: Sequence[Tensor], verb: Verb) -> tuple[list[Tensor], list[Tensor], list[Exchange]]:
    """Outputs, gradients of sum(output * weights) with other random weights on each rank, and the exchanges.

    Each rank runs its own backward, in a later run of the world than the forward.
    """
    world = InProcessWorld(Mesh(cp=len(shards)))
    outs = world.run(lambda member: verb(member.ranks.cp, shards[member.rank]))
    grads = world.run(
        lambda member: torch.autograd.grad((outs[member.rank] * weights(outs[member.rank], member.rank)).sum(),
                                           shards[member.rank])[0]
    )  # fmt: skip
    return outs, grads, [member.ranks.cp for member in world.members]


def weights(out: Tensor, rank: int) -> Tensor:
    return randn(*out.shape, seed=100 + rank)


def shards_of(counts: Sequence[int]) -> list[Tensor]:
    return [leaf(count, WIDTH, seed=rank) for rank, count in enumerate(counts)]


def check(shards: Sequence[Tensor], verb: Verb, expected: Sequence[Tensor]) -> list[Exchange]:
    """The verb gives what one process makes of the shards, and so do its adjoints; returns the exchanges."""
    outs, grads, exchanges = on_ranks(shards, verb)
    for out, slow in zip(outs, expected, strict=True):
        assert torch.equal(out, slow)
    scalar = sum((slow * weights(slow, rank)).sum() for rank, slow in enumerate(expected))
    for grad, slow in zip(grads, torch.autograd.grad(scalar, shards, materialize_grads=True), strict=True):
        assert relative_error(grad, slow, floor=1e-3) < 1e-15 * len(shards)
    return exchanges


def sent(exchanges: Sequence[Exchange], verb: str) -> int:
    """Bytes of a verb, all ranks together; no other verb sent any."""
    assert {name for exchange in exchanges for name in exchange.sent_bytes} <= {verb}
    return sum(exchange.sent_bytes[verb] for exchange in exchanges)


# -- halos -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 5, 7, 12, 100])
@EVERY_NUMBER_OF_RANKS
def test_left_halo_is_the_rows_before(ranks: int, rows: int) -> None:
    plans = [shard_of(PackLayout.single(24), rank=rank, ranks=ranks) for rank in range(ranks)]
    shards = shards_of([24 // ranks] * ranks)
    stream = torch.cat(shards)
    starts = [plan.start for plan in plans]
    # From 8 ranks on, 5 rows and more come from several ranks.
    expected = [stream[(start - min(rows, start) if ranks > 1 else start) : start + 24 // ranks] for start in starts]
    exchanges = check(
        shards, lambda exchange, x: exchange.left_halo(x, rows=rows, plan=plans[exchange.rank], where="here"), expected
    )
    forward_and_backward = 2 * sum(min(rows, start) for start in starts) * WIDTH * F64
    assert sent(exchanges, "left_halo") == (forward_and_backward if ranks > 1 else 0)


@pytest.mark.parametrize("rows", [1, 2, 5, 7, 12, 100])
@EVERY_NUMBER_OF_RANKS
def test_right_halo_is_the_rows_behind(ranks: int, rows: int) -> None:
    plans = [shard_of(PackLayout.single(24), rank=rank, ranks=ranks) for rank in range(ranks)]
    shards = shards_of([24 // ranks] * ranks)
    stream = torch.cat(shards)
    behind = [min(rows, 24 - plan.end) for plan in plans]
    expected = [stream[plan.start : plan.end + more] for plan, more in zip(plans, behind, strict=True)]
    exchanges = check(
        shards, lambda exchange, x: exchange.right_halo(x, rows=rows, plan=plans[exchange.rank], where="here"), expected
    )
    assert sent(exchanges, "right_halo") == (2 * sum(behind) * WIDTH * F64 if ranks > 1 else 0)


def test_a_halo_of_no_rows_moves_nothing() -> None:
    plans = [shard_of(PackLayout.single(8), rank=rank, ranks=4) for rank in range(4)]
    shards = shards_of([2] * 4)
    for halo in (Exchange.left_halo, Exchange.right_halo):
        exchanges = check(
            shards, lambda exchange, x, halo=halo: halo(exchange, x, rows=0, plan=plans[exchange.rank], where="here"),
            shards,
        )  # fmt: skip
        assert sent(exchanges, halo.__name__) == 0


# -- gathering, adding, swapping ---------------------------------------------------------------------------------------


@every_count
def test_all_rows_are_everyones_in_rank_order(counts: list[int]) -> None:
    shards = shards_of(counts)
    exchanges = check(
        shards, lambda exchange, x: exchange.all_rows(x, counts=counts, where="here"), [torch.cat(shards)] * 4
    )
    assert sent(exchanges, "all_rows") == 2 * 3 * sum(counts) * WIDTH * F64


def test_total_is_the_same_bits_on_every_rank() -> None:
    shards = [leaf(5, WIDTH, seed=rank) for rank in range(4)]
    world = InProcessWorld(Mesh(cp=4))
    totals = world.run(lambda member: member.ranks.cp.total(shards[member.rank], where="here"))
    assert all(torch.equal(total, totals[0]) for total in totals)
    assert torch.equal(totals[0], shards[0] + shards[1] + shards[2] + shards[3]), "added in rank order"
    assert sent([member.ranks.cp for member in world.members], "total") == 4 * 3 * 5 * WIDTH * F64


def test_a_loss_of_totals_counts_once_however_many_ranks_hold_it() -> None:
    """Every rank ends with the same loss and seeds its backward with 1; its own rows get the whole gradient."""
    shards = [leaf(WIDTH, seed=rank) for rank in range(4)]

    def gradient(member: Member) -> Tensor:
        loss = member.ranks.cp.total(shards[member.rank].square(), where="here").pow(3).sum()
        return torch.autograd.grad(loss, shards[member.rank])[0]

    world = InProcessWorld(Mesh(cp=4))
    found = world.run(gradient)
    loss = sum(x.square() for x in shards).pow(3).sum()
    for grad, slow in zip(found, torch.autograd.grad(loss, shards), strict=True):
        assert relative_error(grad, slow) < 1e-15
    assert sent([member.ranks.cp for member in world.members], "total") == 4 * 3 * WIDTH * F64, "nothing backward"


MATRICES = {  # [from rank][to rank]
    "uneven": [[1, 2, 0], [3, 0, 1], [2, 2, 2]],
    "a rank receives nothing": [[2, 0, 1], [1, 0, 4], [0, 0, 3]],
    "a rank sends nothing": [[0, 0, 0], [1, 1, 2], [0, 3, 0]],
    "nothing": [[0, 0, 0]] * 3,
}


@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES.keys())
def test_swapped_rows_come_in_order_of_sending_rank(matrix: list[list[int]]) -> None:
    shards = shards_of([sum(row) for row in matrix])
    to = [shard.split(row) for shard, row in zip(shards, matrix, strict=True)]
    expected = [torch.cat([to[source][target] for source in range(3)]) for target in range(3)]

    def swap(exchange: Exchange, x: Tensor) -> Tensor:
        receives = [matrix[source][exchange.rank] for source in range(3)]
        return exchange.swap_rows(x, sends=matrix[exchange.rank], receives=receives, where="here")

    away = sum(matrix[source][target] for source in range(3) for target in range(3) if source != target)
    assert sent(check(shards, swap, expected), "swap_rows") == 2 * away * WIDTH * F64


def test_integers_travel_too() -> None:
    def work(member: Member) -> Tensor:
        own = torch.tensor([10 * member.rank, 10 * member.rank + 1])
        return member.ranks.cp.swap_rows(own, sends=[1, 1], receives=[1, 1], where="here")

    assert [out.tolist() for out in InProcessWorld(Mesh(cp=2)).run(work)] == [[0, 10], [1, 11]]


def test_rows_of_any_rank_and_shape() -> None:
    shards = [leaf(rank + 1, 2, 5, seed=rank) for rank in range(3)]
    check(shards, lambda exchange, x: exchange.all_rows(x, counts=[1, 2, 3], where="here"), [torch.cat(shards)] * 3)


def test_verbs_follow_one_another() -> None:
    """Rows that travel twice, and rows that a rank reads twice: gradients add up along every way."""
    plans = [shard_of(PackLayout.single(8), rank=rank, ranks=4) for rank in range(4)]
    shards = shards_of([2] * 4)
    stream = torch.cat(shards)
    gathered = torch.cat([stream[max(2 * rank - 3, 0) : 2 * rank + 2][-2:].square() for rank in range(4)])

    def verb(exchange: Exchange, x: Tensor) -> Tensor:
        halo = exchange.left_halo(x, rows=3, plan=plans[exchange.rank], where="one")
        rows = exchange.all_rows(halo[-2:].square(), counts=[2] * 4, where="two")
        return torch.cat([rows, halo])

    expected = [torch.cat([gathered, stream[max(2 * rank - 3, 0) : 2 * rank + 2]]) for rank in range(4)]
    outs, grads, _ = on_ranks(shards, verb)
    scalar = sum((slow * weights(slow, rank)).sum() for rank, slow in enumerate(expected))
    for out, slow in zip(outs, expected, strict=True):
        assert torch.equal(out, slow)
    for grad, slow in zip(grads, torch.autograd.grad(scalar, shards), strict=True):
        assert relative_error(grad, slow) < 1e-14


def test_one_rank_keeps_its_tensor_and_sends_nothing() -> None:
    exchange, x = Ranks.one().cp, leaf(5, WIDTH)
    plan = shard_of(PackLayout.single(5), rank=0, ranks=1)
    assert exchange.left_halo(x, rows=3, plan=plan, where="here") is x
    assert exchange.right_halo(x, rows=3, plan=plan, where="here") is x
    assert exchange.all_rows(x, counts=[5], where="here") is x
    assert exchange.total(x, where="here") is x
    assert exchange.swap_rows(x, sends=[5], receives=[5], where="here") is x
    assert not exchange.sent_bytes


# -- the same bits, and a world that goes on ---------------------------------------------------------------------------


def test_every_run_repeats_its_bits() -> None:
    counts = UNEVEN["uneven"]
    shards = shards_of(counts)
    first, again = (on_ranks(shards, lambda e, x: e.all_rows(x, counts=counts, where="here"))[1] for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def test_ranks_run_in_rank_order_one_at_a_time() -> None:
    order: list[tuple[int, str]] = []

    def work(member: Member) -> None:
        order.append((member.rank, "before"))
        member.ranks.cp.total(torch.zeros(1), where="here")
        order.append((member.rank, "behind"))

    InProcessWorld(Mesh(cp=3)).run(work)
    assert order[:3] == [(0, "before"), (1, "before"), (2, "before")]
    assert sorted(order[3:]) == [(0, "behind"), (1, "behind"), (2, "behind")]


def test_a_graph_can_be_run_backward_twice_and_again_later() -> None:
    shards, counts = shards_of([1, 2]), [1, 2]
    world = InProcessWorld(Mesh(cp=2))
    outs = world.run(lambda member: member.ranks.cp.all_rows(shards[member.rank], counts=counts, where="here"))

    def backward(member: Member) -> Tensor:
        return torch.autograd.grad(outs[member.rank].sum(), shards[member.rank], retain_graph=True)[0]

    for _ in range(2):
        assert all((grad == 2).all() for grad in world.run(backward))
    more = world.run(lambda member: member.ranks.cp.total(torch.ones(1), where="later"))
    assert [total.item() for total in more] == [2, 2]


# -- disagreements -----------------------------------------------------------------------------------------------------


def run(ranks: int, work: Callable[[Member], object]) -> None:
    InProcessWorld(Mesh(cp=ranks)).run(work)


def test_different_verbs_are_told_by_name() -> None:
    def work(member: Member) -> None:
        exchange, x = member.ranks.cp, torch.zeros(2, 1)
        exchange.total(x, where="first")
        if member.rank == 1:
            exchange.total(x, where="layer 3")
        else:
            exchange.all_rows(x, counts=[2, 2], where="layer 3")

    text = "rank 0 asks for all_rows in layer 3, where rank 1 asks for total in layer 3 (exchange 2)"
    with pytest.raises(RankError) as caught:
        run(2, work)
    assert str(caught.value) == text


def test_the_same_verb_for_different_layers_is_a_disagreement() -> None:
    with pytest.raises(RankError, match=r"rank 2 asks for total in layer 2, where rank 0 asks for total in layer 0 "):
        run(3, lambda member: member.ranks.cp.total(torch.zeros(1), where=f"layer {member.rank // 2 * 2}"))


def test_forward_against_backward_is_a_disagreement() -> None:
    shards, counts = shards_of([1, 1]), [1, 1]
    world = InProcessWorld(Mesh(cp=2))
    outs = world.run(lambda member: member.ranks.cp.all_rows(shards[member.rank], counts=counts, where="here"))

    def work(member: Member) -> None:
        if member.rank == 0:
            outs[0].sum().backward()
        else:
            member.ranks.cp.all_rows(shards[1], counts=counts, where="here")

    with pytest.raises(
        RankError, match=r"rank 1 asks for all_rows in here, where rank 0 .* all_rows in here \(backward\) "
    ):
        world.run(work)


def test_rows_that_are_not_those_expected_are_told_with_both_numbers() -> None:
    def work(member: Member) -> None:
        own = torch.zeros(3 - member.rank, 1)
        member.ranks.cp.all_rows(own, counts=[2, 2], where="layer 1")

    with pytest.raises(RankError) as caught:
        run(2, work)
    assert str(caught.value) == "rank 1 expects 2 rows of rank 0 in all_rows in layer 1, which sends 3 (exchange 1)"


def test_a_rank_that_finishes_early_is_told_by_those_that_wait() -> None:
    def work(member: Member) -> None:
        member.ranks.cp.total(torch.zeros(1), where="layer 0")
        if member.rank != 1:
            member.ranks.cp.total(torch.zeros(1), where="layer 1")

    with pytest.raises(RankError) as caught:
        run(3, work)
    waits = "waits in total in layer 1, exchange 2"
    assert str(caught.value) == f"rank 0 {waits}, where rank 1 has finished, rank 2 {waits}"


def test_ranks_that_wait_for_each_other_are_told_and_do_not_hang() -> None:
    def work(member: Member) -> None:
        groups = [member.ranks.cp, member.ranks.ep]
        for exchange in groups if member.rank == 0 else reversed(groups):
            exchange.total(torch.zeros(1), where="cp" if exchange is member.ranks.cp else "ep")

    with pytest.raises(RankError) as caught:
        InProcessWorld(Mesh(cp=2, ep=2)).run(work)
    ends = "waits in total in cp, exchange 1", "waits in total in ep, exchange 1"
    assert str(caught.value) == f"rank 1 {ends[1]}, where rank 0 {ends[0]}"


def test_an_error_on_one_rank_comes_out_with_a_note_of_the_rank() -> None:
    unwound: list[int] = []

    def work(member: Member) -> None:
        try:
            member.ranks.cp.total(torch.zeros(1), where="here")
            if member.rank == 1:
                raise ZeroDivisionError("of its own")
            member.ranks.cp.total(torch.zeros(1), where="never answered")
        finally:
            unwound.append(member.rank)

    with pytest.raises(ZeroDivisionError, match="of its own") as caught:
        run(3, work)
    assert caught.value.__notes__ == ["on rank 1 of 3"]
    assert sorted(unwound) == [0, 1, 2], "the waiting ones unwind"


def test_a_world_is_spent_after_an_error() -> None:
    world = InProcessWorld(Mesh(cp=2))

    def fail(member: Member) -> None:
        raise ZeroDivisionError(f"rank {member.rank}")

    for work in (fail, lambda member: member.ranks.cp.total(torch.zeros(1), where="here")):
        with pytest.raises(ZeroDivisionError, match="rank 0"):
            world.run(work)


def test_a_request_says_what_it_is() -> None:
    assert str(Request("left_halo", "trunk.layers.3")) == "left_halo in trunk.layers.3"
    assert str(Request("left_halo", "mtp", backward=True)) == "left_halo in mtp (backward)"
