"""The steps of a check-up, in the order in which an author would write what they ask for."""

from __future__ import annotations

import enum
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.case import DTYPES, Case
from harness.checkup import questions
from harness.checkup.questions import Asked, Wrong
from harness.engine.decide import describe_error
from harness.errors import CRASHES
from harness.subjects.protocol import Unsupported
from harness.subjects.support import aspect_of, kept_clear, refusal, unsupported_by, widest_dtype

if TYPE_CHECKING:
    from harness.corpus import Corpus
    from harness.subjects.protocol import SubjectFactory

TOKEN = "all/5p3.33.17+64/s1"
"""Every layer kind, three ragged samples, padding between and behind; kept clear of what is declared unsupported."""


class Status(enum.Enum):
    """What a step found. LEFT_OUT: the subject says that it does not support it. UNKNOWN: it could not be found out."""

    OK = "ok"
    WRONG = "WRONG"
    LEFT_OUT = "left out"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """A step's name, what it found, and a sentence."""

    step: str
    status: Status
    sentence: str


@dataclass(frozen=True)
class _Step:
    """ask returns what is fine, raises Wrong for what is not, Unsupported for what the subject leaves out.

    The steps behind one that others need are not reached if it fails.
    """

    name: str
    ask: Callable[[Asked], str]
    others_need_it: bool = False


STEPS = (
    _Step("name", questions.name),
    _Step("config", questions.config),
    _Step("parameters", questions.parameters, others_need_it=True),
    _Step("embeddings", questions.embeddings),
    _Step("values", questions.values, others_need_it=True),
    _Step("terms", questions.terms),
    _Step("same twice", questions.same_twice),
    _Step("embeddings given", questions.embeddings_given),
    _Step("gradients of embeddings", questions.gradients_of_embeddings),
    _Step("gradients of parameters", questions.gradients_of_parameters),
    _Step("parameters in place", questions.parameters_in_place),
    _Step("labels and losses", questions.labels_and_losses),
    _Step("what is declared is refused", questions.declared_is_refused),
    _Step("the definition", questions.the_definition),
)


def check_subject(factory: SubjectFactory, corpus: Corpus) -> Iterator[Finding]:
    """Ask one step after another; each finding as it is made."""
    unsupported = unsupported_by(factory)
    yield Finding("declared", Status.OK, _declared(unsupported))
    built = _built(factory, corpus)
    if isinstance(built, Finding):
        yield built
        yield from _unreached([step.name for step in STEPS])
        return
    yield Finding("build", Status.OK, _in_words(built.case))
    for number, step in enumerate(STEPS):
        finding = _found(step, built)
        yield finding
        if step.others_need_it and finding.status is Status.WRONG:
            yield from _unreached([later.name for later in STEPS[number + 1 :]])
            return


def _declared(unsupported: Mapping[str, str]) -> str:
    if not unsupported:
        return "nothing is declared unsupported, so everything will be asked"
    return "not supported: " + "; ".join(f"{aspect_of(name).about} ({why})" for name, why in unsupported.items())


def _in_words(case: Case) -> str:
    kind, *changes = case.config.split(",")
    config = f"{kind} with {', '.join(changes)}" if changes else kind
    lengths = ", ".join(map(str, case.lengths))
    return f"{config}, in {case.dtype}; the pack has samples of {lengths} tokens and {case.total} in all"


def _built(factory: SubjectFactory, corpus: Corpus) -> Asked | Finding:
    unsupported = unsupported_by(factory)
    dtype = widest_dtype(unsupported)
    if dtype is None:
        return Finding("build", Status.WRONG, f"every dtype is declared unsupported: {', '.join(DTYPES)}")
    case = kept_clear(Case.from_token(f"{TOKEN}/{dtype}"), unsupported)
    reason = refusal(case, unsupported)
    if reason is not None:
        return Finding("build", Status.UNKNOWN, f"no pack can be made without {reason}")
    try:
        subject = factory(case.v4config(), case.torch_dtype(), case.seed)
    except CRASHES as error:  # the subject is someone else's code
        return Finding("build", Status.WRONG, f"the factory raised for {case.config} in {dtype}: {_told(error)}")
    own = unsupported_by(subject)
    unseen = sorted(set(own) - set(unsupported))
    if unseen and (unclear := refusal(case, own)) is not None:
        return Finding(
            "build",
            Status.WRONG,
            f"only the subject declares {', '.join(unseen)} ({unclear}); put it on the factory too, so that cases are "
            "kept clear of it (a class with a class attribute `unsupported` is its own factory)",
        )
    return Asked(factory=factory, subject=subject, case=case, corpus=corpus)


def _found(step: _Step, asked: Asked) -> Finding:
    try:
        return Finding(step.name, Status.OK, step.ask(asked))
    except Wrong as wrong:
        return Finding(step.name, Status.WRONG, str(wrong))
    except questions.Unknown as unknown:
        return Finding(step.name, Status.UNKNOWN, str(unknown))
    except Unsupported as reason:
        return Finding(step.name, Status.LEFT_OUT, str(reason))
    except CRASHES as error:  # the subject is someone else's code
        return Finding(step.name, Status.WRONG, _told(error))


def _told(error: BaseException) -> str:
    """What was raised, and the line it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f", from line {frames[-1].lineno} of {frames[-1].filename}" if frames else ""
    return f"{describe_error(error)}{place}"


def _unreached(names: list[str]) -> Iterator[Finding]:
    for name in names:
        yield Finding(name, Status.UNKNOWN, "not reached")
