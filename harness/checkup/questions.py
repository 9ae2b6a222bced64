"""What each step of a check-up asks of a subject: a function returns what is fine, or raises what is wrong.

Letters: T tokens of the pack, V vocabulary, D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.case import Case
from harness.catalogue import find_property
from harness.engine.decide import decide
from harness.properties.bounds import bounds_of
from harness.properties.index_loss import of_indexer
from harness.properties.measure import moved_rows
from harness.properties.runs import objective, turned
from harness.subjects.missing import missing_is_noted, note_what_is_missing
from harness.subjects.protocol import Observation, Unsupported
from harness.subjects.support import (
    ASPECTS,
    EMBEDDINGS,
    INTERIOR_PADDING,
    KL,
    PACKING,
    PADDING,
    PARAMETERS,
    TERMS,
    WIDE,
    unsupported_by,
)
from harness.tolerance import relative_error
from harness.verdict import Outcome

if TYPE_CHECKING:
    from harness.corpus import Corpus
    from harness.subjects.protocol import Subject, SubjectFactory
    from v4model import Pack

_SINGLE = "all/33/s1"


class Wrong(Exception):
    """Something that the adapter's author has to change, in a sentence."""


class Unknown(Exception):
    """Something that could not be found out, in a sentence."""


@dataclass(frozen=True)
class Asked:
    """A subject built for a case."""

    factory: SubjectFactory
    subject: Subject
    case: Case
    corpus: Corpus

    @cached_property
    def pack(self) -> Pack:
        """The case's pack."""
        return self.case.pack(self.corpus)

    def observe(self, *, embeddings: Tensor | None = None) -> Observation:
        """One run of the pack."""
        return self.subject.observe(self.pack, embeddings=embeddings)

    def without_graph(self, *, embeddings: Tensor | None = None) -> Observation:
        """One run of the pack that nobody differentiates."""
        with torch.no_grad():
            return self.observe(embeddings=embeddings)


def name(asked: Asked) -> str:
    found: object = asked.subject.name
    if not isinstance(found, str) or not found.strip() or "\n" in found:
        raise Wrong(f"got {found!r}; expected one line of text, which reports call the subject by")
    return found


def config(asked: Asked) -> str:
    if asked.subject.config != asked.case.v4config():
        raise Wrong("the subject's config is not the one that the factory was given")
    return "the one that the factory was given"


def parameters(asked: Asked) -> str:
    found: object = asked.subject.parameters()
    if not isinstance(found, Mapping) or not found:
        raise Wrong(f"got {type(found).__name__}; expected a mapping from names to the parameters' tensors")
    for key, leaf in found.items():
        if not isinstance(leaf, Tensor) or not leaf.is_leaf:
            raise Wrong(f"{key} is no leaf of the graph; give the parameter itself, not what is computed from it")
        if not leaf.requires_grad:
            raise Wrong(f"{key} does not require a gradient; leave out what is not trained")
    again = asked.subject.parameters()
    if any(again.get(key) is not leaf for key, leaf in found.items()):
        raise Wrong("a second call gives other tensors; the same ones are needed, they are changed in place")
    return f"{len(found)} leaves, {sum(leaf.numel() for leaf in found.values()):,} numbers"


def embeddings(asked: Asked) -> str:
    rows, pack = asked.subject.embeddings(asked.pack), asked.pack
    if rows.ndim != 2 or len(rows) != pack.layout.total:
        raise Wrong(f"got shape {list(rows.shape)}; expected [T, D], T = {pack.layout.total}")
    if rows.requires_grad:
        raise Wrong("they require a gradient; give them detached")
    if not bool(rows.isfinite().all()):
        raise Wrong("some are not finite")
    if bool((rows[~pack.layout.real] != 0).any()):
        raise Wrong("those of padding are not 0")
    return f"{list(rows.shape)}, detached, 0 at padding"


def values(asked: Asked) -> str:
    try:
        seen: object = asked.without_graph()
    except Unsupported as error:
        # The pack needs nothing that is declared, and cases can only be kept clear of what is.
        raise Wrong(f"{error}; what it does not support has to be declared in `unsupported`") from error
    if not isinstance(seen, Observation):
        raise Wrong(f"observe gave {type(seen).__name__}; expected an Observation")
    layout, depths = asked.pack.layout, asked.subject.config.num_nextn_predict_layers + 1
    if len(seen.depths) != depths:
        raise Wrong(f"got {len(seen.depths)} depths; expected {depths}, the trunk and {depths - 1} of MTP")
    asked_for = asked.case.torch_dtype()
    for number, depth in enumerate(seen.depths):
        where = f"MTP depth {number}" if number else "the trunk"
        shape = [layout.total, asked.subject.config.vocab_size]
        if depth.values.dtype != asked_for and WIDE not in unsupported_by(asked.subject):
            raise Wrong(f"logits of {where} are {depth.values.dtype}; {asked_for} was asked for")
        for what, tensor, expected in (
            ("logits", depth.values, shape),
            ("nll", depth.nll, shape[:1]),
            ("valid", depth.valid, shape[:1]),
        ):
            if list(tensor.shape) != expected:
                raise Wrong(f"{what} of {where}: got shape {list(tensor.shape)}; expected {expected}")
        if depth.valid.dtype != torch.bool or not torch.equal(depth.valid, layout.ahead(number) >= 0):
            raise Wrong(f"valid of {where} is not True exactly where the sample has the token {number} further on")
        if not bool(depth.values[depth.valid].isfinite().all()) or not bool(depth.nll.isfinite().all()):
            raise Wrong(f"some logits or nll of {where} are not finite")
    return f"{depths} depths of logits [{layout.total}, {asked.subject.config.vocab_size}], finite"


def terms(asked: Asked) -> str:
    seen = asked.without_graph()
    with missing_is_noted() as missing:
        note_what_is_missing(seen, asked.subject.config)
    if missing:
        raise Wrong(f"{missing[0]}; give it, or declare it unsupported")
    for what, given in (("sums", seen.sums), ("losses", seen.losses)):
        for key, value in given.items():
            if not isinstance(value, Tensor) or value.numel() != 1 or not bool(value.isfinite()):
                raise Wrong(f"{what}[{key!r}] is no finite tensor of one element")
    uncounted = sorted(seen.sums.keys() - seen.counts.keys())
    if uncounted:
        raise Wrong(f"sums without a count of the same name: {', '.join(uncounted)}")
    named = f"sums of {', '.join(sorted({key.split(' ', 1)[0] for key in seen.sums}))}"
    if TERMS in unsupported_by(asked.subject):
        return f"{named}; losses are declared unsupported"
    if "loss" not in seen.losses:
        raise Wrong("losses have no 'loss', the total")
    return f"{named}; losses with a total"


def same_twice(asked: Asked) -> str:
    one = asked.without_graph()
    _check_same(asked.without_graph(), one, "differ between two runs of the same pack: nothing can be compared")
    seedless = "of a second subject of the same seed are others: weights must follow from the seed alone"
    _check_same(_of_another(asked, [asked.pack]), one, seedless)
    kept = "are others after a pack of as many tokens with other boundaries: something is kept by a pack's size"
    _check_same(_of_another(asked, [turned(asked.pack), asked.pack]), one, kept)
    return "two runs, and two more subjects of the same seed, agree to the bit"


def _of_another(asked: Asked, packs: Sequence[Pack]) -> Observation:
    """What a subject of its own gives on the last of some packs."""
    other = asked.factory(asked.case.v4config(), asked.case.torch_dtype(), asked.case.seed)
    with torch.no_grad():
        *_, last = [other.observe(pack) for pack in packs]
    return last


def _check_same(again: Observation, one: Observation, what: str) -> None:
    for number, (first, second) in enumerate(zip(one.depths, again.depths, strict=True)):
        if bool(moved_rows(first.values, second.values).any()):
            raise Wrong(f"logits of depth {number} {what}")


def embeddings_given(asked: Asked) -> str:
    rows = asked.subject.embeddings(asked.pack)
    looked_up, given = asked.without_graph(), asked.without_graph(embeddings=rows)
    noise = torch.rand(rows.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(rows)
    other = asked.without_graph(embeddings=rows + noise)
    for number, (depth, same) in enumerate(zip(looked_up.depths, given.depths, strict=True)):
        own = depth.valid
        error = relative_error(same.values[own], depth.values[own], floor=0.0)
        if error > bounds_of(asked.subject, asked.case).reordered:
            raise Wrong(f"given its own embeddings, depth {number} gives other logits, by {error:.1e} of their maximum")
        if not bool(moved_rows(other.depths[number].values, same.values)[own].any()):
            raise Wrong(f"other embeddings move no logit of depth {number}: they do not replace the lookup")
    return "they replace the lookup at every depth"


def gradients_of_embeddings(asked: Asked) -> str:
    rows = asked.subject.embeddings(asked.pack).requires_grad_()
    seen, real = asked.observe(embeddings=rows), asked.pack.layout.real
    for number, depth in enumerate(seen.depths):
        (grad,) = torch.autograd.grad(
            depth.values[depth.valid].square().sum(), rows, retain_graph=True, allow_unused=True
        )
        if grad is None or not bool((grad != 0).any()):
            raise Wrong(f"depth {number} has no gradient at the embeddings")
        if not bool(grad.isfinite().all()):
            raise Wrong(f"depth {number} has a gradient at the embeddings that is not finite")
        silent = int(((grad == 0).all(1) & real).sum())
        if number == 0 and silent:
            raise Wrong(f"{silent} of {int(real.sum())} real tokens have no gradient at all from the trunk")
    return "every real token's embedding has one"


def gradients_of_parameters(asked: Asked) -> str:
    declared, leaves, seen = unsupported_by(asked.subject), dict(asked.subject.parameters()), asked.observe()
    # Without losses the sums they are made of; without KL nothing is meant to teach an indexer.
    loss = objective(seen) if TERMS in declared else seen.losses["loss"]
    taught = leaves.keys() - (of_indexer(leaves) if KL in declared else set())
    if not loss.requires_grad:
        raise Wrong("the loss carries no graph")
    found: Sequence[Tensor | None] = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    without = [key for key, grad in zip(leaves, found, strict=True) if grad is None and key in taught]
    if without:
        few = ", ".join(without[:3]) + (f" and {len(without) - 3} more" if len(without) > 3 else "")
        raise Wrong(f"the loss does not reach {few}; leave out what no loss is meant to reach")
    return f"the loss reaches all {len(taught)}" + (" but the indexers'" if len(taught) < len(leaves) else "")


def parameters_in_place(asked: Asked) -> str:
    """A parameter changed in place changes what is computed: gradients_are_derivatives relies on it."""
    before = asked.without_graph()
    leaves = asked.subject.parameters()
    kept = {key: leaf.detach().clone() for key, leaf in leaves.items()}
    try:
        with torch.no_grad():
            for leaf in leaves.values():
                leaf.mul_(1.25)
        after = asked.without_graph()
    finally:
        with torch.no_grad():
            for key, leaf in leaves.items():
                leaf.copy_(kept[key])
    if not bool(moved_rows(after.depths[0].values, before.depths[0].values).any()):
        raise Wrong("parameters changed in place move no logit: they are copies of what the model computes with")
    again = asked.without_graph()
    if bool(moved_rows(again.depths[0].values, before.depths[0].values).any()):
        raise Wrong("parameters changed back do not give the logits of before")
    return "what is changed in place is what the model computes with"


def labels_and_losses(asked: Asked) -> str:
    declared = unsupported_by(asked.subject)
    if TERMS in declared:
        raise Unsupported(f"{ASPECTS[TERMS].about}: {declared[TERMS]}")
    verdict = decide(find_property("labels_stay_inside"), asked.factory, asked.case, asked.corpus, fault=None)
    if verdict.outcome is Outcome.VIOLATED and verdict.witness is not None:
        raise Wrong(verdict.witness.sentence())
    if verdict.outcome is not Outcome.HOLDS:
        raise Unknown(verdict.reason)
    return "nll, sums, counts and losses are those of the logits and the mask"


def declared_is_refused(asked: Asked) -> str:
    """What no case tells of beforehand, the subject has to refuse itself."""
    declared = unsupported_by(asked.subject)
    packs = {PACKING: "all/5.9/s1", PADDING: "all/9+12/s1", INTERIOR_PADDING: "all/5p3.9/s1"}

    def of_pack(token: str) -> Callable[[], object]:
        case = Case.from_token(f"{asked.case.config}/{token.split('/', 1)[1]}")
        return lambda: asked.subject.observe(case.pack(asked.corpus))

    calls: dict[str, Callable[[], object]] = {key: of_pack(token) for key, token in packs.items()}
    calls[EMBEDDINGS] = lambda: asked.observe(embeddings=torch.zeros(asked.pack.layout.total, 1))
    calls[PARAMETERS] = asked.subject.parameters
    refused = []
    for key, call in calls.items():
        if key not in declared:
            continue
        try:
            call()
        except Unsupported:
            refused.append(key)
            continue
        raise Wrong(f"{key} is declared unsupported, and no Unsupported is raised when it is asked for")
    return f"refused: {', '.join(refused)}" if refused else "nothing of the kind is declared"


def the_definition(asked: Asked) -> str:
    if not hasattr(asked.subject, "export_weights"):
        raise Unknown(
            "without export_weights() nothing says whether a single sample is computed as the definition has it"
        )
    kept = Case.from_token(f"{asked.case.config}/{_SINGLE.split('/', 1)[1]}/{asked.case.dtype}")
    verdict = decide(find_property("matches_plain_reading"), asked.factory, kept, asked.corpus, fault=None)
    if verdict.outcome is Outcome.VIOLATED and verdict.witness is not None:
        raise Wrong(verdict.witness.sentence())
    if verdict.outcome is not Outcome.HOLDS:
        raise Unknown(verdict.reason)
    return f"a single sample is that of the plain reading, largest error {verdict.error:.0e}"
