"""Each thing that an adapter's author can get wrong is found by the step that is for it, in a sentence."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor

from harness import cli
from harness.checkup import Finding, Status, check_subject, exit_code, lines, summary
from harness.subjects.adapter import Outputs
from harness.subjects.protocol import Observation, SubjectFactory
from harness.subjects.v4model_one_rank import V4OneRank, build
from suites.harness import fakes
from suites.harness.subjects import toy
from v4model import Pack, PackLayout, V4Config


def findings_of(factory: SubjectFactory) -> list[Finding]:
    """All of a check-up."""
    return list(check_subject(factory, fakes.corpus()))


def wrong(factory: SubjectFactory) -> dict[str, str]:
    """Sentences of the steps that found something to change."""
    return {finding.step: finding.sentence for finding in findings_of(factory) if finding.status is Status.WRONG}


def test_a_good_adapter_has_nothing_to_change() -> None:
    findings = findings_of(toy.Toy)
    assert wrong(toy.Toy) == {}
    unknown = [finding.step for finding in findings if finding.status is not Status.OK]
    assert unknown == ["the definition"]  # it is no V4 model
    assert exit_code(findings) == 0


def test_the_model_of_this_repository_computes_the_definition() -> None:
    findings = {finding.step: finding for finding in findings_of(build)}
    assert {finding.status for finding in findings.values()} == {Status.OK}
    assert "plain reading" in findings["the definition"].sentence


@pytest.mark.parametrize("subject", [toy.WithoutMtp, toy.Single])
def test_what_is_declared_is_left_out(subject: SubjectFactory) -> None:
    assert wrong(subject) == {}
    (declared, *_) = findings_of(subject)
    assert declared.step == "declared"
    assert "the balance loss (the toy has no routers)" in declared.sentence


def test_losses_that_are_declared_are_left_out() -> None:
    statuses = {finding.step: finding.status for finding in findings_of(WithoutLossAndSaysSo)}
    assert statuses["terms"] is Status.OK
    assert statuses["labels and losses"] is Status.LEFT_OUT
    assert statuses["gradients of parameters"] is Status.OK


class WithIndexer(toy.Toy):
    """Has an indexer that nothing teaches."""

    def __init__(self, config: V4Config, dtype: torch.dtype, seed: int) -> None:
        super().__init__(config, dtype, seed)
        self._unused = torch.zeros(3, requires_grad=True)

    def parameters(self) -> Mapping[str, Tensor]:
        return {**super().parameters(), "layers.0.indexer.weight": self._unused}


def test_an_indexer_that_nothing_is_to_teach_may_be_without_gradient() -> None:
    (found,) = [finding for finding in findings_of(WithIndexer) if finding.step == "gradients of parameters"]
    assert (found.status, found.sentence) == (Status.OK, "the loss reaches all 5 but the indexers'")


class Nameless(toy.Toy):
    name = " "


class OtherConfig(toy.Toy):
    def __init__(self, config: V4Config, dtype: torch.dtype, seed: int) -> None:
        super().__init__(config, dtype, seed)
        self.config = replace(config, vocab_size=config.vocab_size + 1)


class NotLeaves(toy.Toy):
    def parameters(self) -> Mapping[str, Tensor]:
        return {name: leaf * 1 for name, leaf in super().parameters().items()}


class Frozen(toy.Toy):
    def parameters(self) -> Mapping[str, Tensor]:
        return {**super().parameters(), "frozen": self._frozen}

    def __init__(self, config: V4Config, dtype: torch.dtype, seed: int) -> None:
        super().__init__(config, dtype, seed)
        self._frozen = torch.zeros(3)


class Copies(toy.Toy):
    """Gives copies of its parameters, the same ones each time."""

    def __init__(self, config: V4Config, dtype: torch.dtype, seed: int) -> None:
        super().__init__(config, dtype, seed)
        self._copies = {name: leaf.detach().clone().requires_grad_() for name, leaf in super().parameters().items()}

    def parameters(self) -> Mapping[str, Tensor]:
        return self._copies


class Attached(toy.Toy):
    def embeddings(self, pack: Pack) -> Tensor:
        return self._looked_up(pack)


class Transposed(toy.Toy):
    def embeddings(self, pack: Pack) -> Tensor:
        return super().embeddings(pack).T


class Ignoring(toy.Toy):
    """Looks ids up whatever embeddings it is given."""

    def forward(self, pack: Pack, embeddings: Tensor | None) -> Outputs:
        return super().forward(pack, None if embeddings is None else self.embeddings(pack))


class IgnoringInMtp(toy.Toy):
    def forward(self, pack: Pack, embeddings: Tensor | None) -> Outputs:
        trunk = super().forward(pack, embeddings).logits[:1]
        return Outputs(logits=[*trunk, *super().forward(pack, None).logits[1:]])


class Detached(toy.Toy):
    def forward(self, pack: Pack, embeddings: Tensor | None) -> Outputs:
        return Outputs(logits=[logits.detach() for logits in super().forward(pack, embeddings).logits])


class Batched(toy.Toy):
    def forward(self, pack: Pack, embeddings: Tensor | None) -> Outputs:
        found = super().forward(pack, embeddings)
        return replace(
            found,
            nll=[torch.zeros(len(logits)) for logits in found.logits],
            logits=[logits[None] for logits in found.logits],
        )


class Infinite(toy.Toy):
    def forward(self, pack: Pack, embeddings: Tensor | None) -> Outputs:
        return Outputs(logits=[logits / 0 for logits in super().forward(pack, embeddings).logits])


class Random(toy.Toy):
    def forward(self, pack: Pack, embeddings: Tensor | None) -> Outputs:
        return Outputs(logits=[torch.nn.functional.dropout(x) for x in super().forward(pack, embeddings).logits])


class Seedless(toy.Toy):
    def __init__(self, config: V4Config, dtype: torch.dtype, seed: int) -> None:
        super().__init__(config, dtype, seed)
        with torch.no_grad():
            self._gate.normal_()


class LabelsOfTheStream(toy.Toy):
    """Its nll is that of the next token of the pack."""

    def forward(self, pack: Pack, embeddings: Tensor | None) -> Outputs:
        found = super().forward(pack, embeddings)
        ahead = pack.tokens.roll(-1)
        nll = [torch.nn.functional.cross_entropy(logits, ahead, reduction="none") for logits in found.logits]
        return replace(found, nll=nll)


class WithoutLoss(toy.Toy):
    def observe(self, pack: Pack, *, embeddings: Tensor | None = None) -> Observation:
        return replace(super().observe(pack, embeddings=embeddings), losses={})


class WithoutLossAndSaysSo(WithoutLoss):
    unsupported = MappingProxyType({**toy.Toy.unsupported, "losses": "its trainer's"})


class SilentAboutBalance(toy.Toy):
    unsupported = MappingProxyType({"kl": "the toy has no indexers"})


class LateDeclaration:
    """A factory without the declaration that its subject has."""

    def __call__(self, *given: Any) -> toy.Toy:
        return toy.Toy(*given)


class Unreached(toy.Toy):
    def __init__(self, config: V4Config, dtype: torch.dtype, seed: int) -> None:
        super().__init__(config, dtype, seed)
        self._unused = torch.zeros(3, requires_grad=True)

    def parameters(self) -> Mapping[str, Tensor]:
        return {**super().parameters(), "unused": self._unused}


class KeepsBySize(toy.Toy):
    """Reads every pack with the boundaries of the first one of as many tokens."""

    def __init__(self, config: V4Config, dtype: torch.dtype, seed: int) -> None:
        super().__init__(config, dtype, seed)
        self._kept: dict[int, PackLayout] = {}

    def forward(self, pack: Pack, embeddings: Tensor | None) -> Outputs:
        layout = self._kept.setdefault(pack.layout.total, pack.layout)
        return super().forward(Pack(pack.tokens, layout=layout, supervised=pack.supervised), embeddings)


class Narrow(toy.Toy):
    def forward(self, pack: Pack, embeddings: Tensor | None) -> Outputs:
        return Outputs(logits=[logits.float() for logits in super().forward(pack, embeddings).logits])


class SilentAboutMtp(toy.Toy):
    def forward(self, pack: Pack, embeddings: Tensor | None) -> Outputs:
        return Outputs(logits=super().forward(pack, embeddings).logits[:1])


class Leaves(toy.Toy):
    def about_to_run(self) -> None:
        sys.exit(0)


class TakesPacksAllTheSame(toy.Single):
    def observe(self, pack: Pack, *, embeddings: Tensor | None = None) -> Observation:
        return toy.Toy.observe(toy.Toy(self.config, self.dtype, self.seed), pack, embeddings=embeddings)


@pytest.mark.parametrize(
    ("factory", "step", "words"),
    [
        (Nameless, "name", "got ' '; expected one line of text"),
        (OtherConfig, "config", "not the one that the factory was given"),
        (NotLeaves, "parameters", "table is no leaf of the graph"),
        (Frozen, "parameters", "frozen does not require a gradient"),
        (Copies, "parameters in place", "copies of what the model computes with"),
        (Attached, "embeddings", "give them detached"),
        (Transposed, "embeddings", "got shape [8, 64]; expected [T, D], T = 64"),
        (Ignoring, "embeddings given", "other embeddings move no logit of depth 0"),
        (IgnoringInMtp, "embeddings given", "other embeddings move no logit of depth 1"),
        (Detached, "gradients of parameters", "the loss carries no graph"),
        (Batched, "values", "logits of the trunk: got shape [1, 64, 512]; expected [64, 512]"),
        (Infinite, "values", "not finite"),
        (Random, "same twice", "logits of depth 0 differ between two runs"),
        (KeepsBySize, "same twice", "after a pack of as many tokens with other boundaries"),
        (Narrow, "values", "logits of the trunk are torch.float32; torch.float64 was asked for"),
        (SilentAboutMtp, "values", "1 depths, the configuration has 3; what it does not support has"),
        (Leaves, "values", "SystemExit: 0"),
        (fakes.leaving, "build", " in float64: SystemExit: 0"),
        (Seedless, "same twice", "of a second subject of the same seed are others"),
        (LabelsOfTheStream, "labels and losses", "nll"),
        (WithoutLoss, "terms", "losses have no 'loss', the total"),
        (SilentAboutBalance, "terms", "it gives no sum of balance, which the configuration has; give it, or declare"),
        (LateDeclaration(), "build", "put it on the factory too"),
        (Unreached, "gradients of parameters", "the loss does not reach unused"),
        (TakesPacksAllTheSame, "what is declared is refused", "packing is declared unsupported, and no Unsupported"),
        (fakes.healthy, "values", "got 1 depths; expected 3, the trunk and 2 of MTP"),
        (fakes.raising, "build", "the factory raised for all in float64: MemoryError: no room"),
    ],
)
def test_what_is_wrong_is_found_by_its_step(factory: SubjectFactory, step: str, words: str) -> None:
    found = wrong(factory)
    assert step in found, found
    assert words in found[step]


def test_a_model_that_is_no_v4_is_told_by_the_definition() -> None:
    def double(config: V4Config, dtype: torch.dtype, seed: int) -> V4OneRank:
        class Other(V4OneRank):
            def export_weights(self) -> Mapping[str, Any]:
                return {name: weight * 2 if "lm_head" in name else weight for name, weight in weights.items()}

        subject = build(config, dtype, seed)
        weights = subject.export_weights()
        return Other(subject.model, seed)

    assert "differ from the plain reading" in wrong(double)["the definition"]


def test_steps_behind_one_that_failed_are_not_reached() -> None:
    findings = findings_of(Infinite)
    later = [finding for finding in findings if finding.sentence == "not reached"]
    assert [finding.status for finding in later] == [Status.UNKNOWN] * len(later)
    assert later[0].step == "terms"
    assert exit_code(findings) == 1


def test_lines_fit_80_columns() -> None:
    findings = findings_of(toy.Single)
    assert max(len(line) for finding in findings for line in lines(finding)) <= 80
    assert summary(findings).startswith("Nothing to change in 16 steps")


def test_the_command_prints_and_exits(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_cli(["check-subject", f"{toy.__name__}:Toy"]) == 0
    assert "ok       parameters: 5 leaves" in capsys.readouterr().out
    assert cli.run_cli(["check-subject", f"{__name__}:Infinite"]) == 1
    assert "WRONG    values: some logits or nll of the trunk are not finite" in capsys.readouterr().out
    assert cli.run_cli(["check-subject", f"{__name__}:Nameless", "--json"]) == 1
    assert '"status": "WRONG"' in capsys.readouterr().out
