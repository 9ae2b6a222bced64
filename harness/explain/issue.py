"""A violation as a text for another project's tracker. Nothing is sent: a person reads it, and posts it or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.peers.known import KnownPeer, of_factory
from harness.subjects.peer_reproductions import reproduction

if TYPE_CHECKING:
    from harness.explain.explanation import Explanation

_LAW = {
    "packed_equals_alone": "A packed sample gives what it gives alone.",
    "query_sees_only_its_sample": "No sample in a pack depends on another one.",
    "query_sees_no_future": "No position depends on later tokens of its own sample.",
    "padding_changes_nothing": "Amount and place of padding change nothing.",
    "matches_plain_reading": "Logits are those of the definition, one sample at a time.",
}

_TEMPLATE = """# DeepSeek-V4, {about}: {title}

**Expected.** {law}

**Got.** {sentence}.

Smallest case found: samples of {lengths} tokens{padding}.

**Versions.** {versions}

**To reproduce** (CPU, random weights, a second; exit status 1 while it is so):

```python
{code}```
"""


def issue_of(
    found: Explanation, *, subject: str, factory: object, versions: Callable[[KnownPeer], dict[str, str]]
) -> str:
    """The text; versions(peer) are those of its environment.

    Raises:
        UsageError: a subject that is no public model, or a case that violates nothing.
    """
    peer = of_factory(subject)
    if peer is None:
        raise UsageError(got=f"subject {subject}", expected="a public model of `harness peers`", where="--issue")
    if found.witness is None:
        raise UsageError(got="a case that violates nothing", expected="a violated one", where="--issue")
    witness, case = found.witness, found.case
    sentence = witness.sentence().partition(": ")[2] or witness.sentence()
    padding = "" if case.slots is None else f", in slots of {_listed(case.slots)}"
    return _TEMPLATE.format(
        about=peer.about.split(",")[0],
        title=witness.property.replace("_", " ") + " does not hold",
        law=_LAW.get(witness.property, witness.property.replace("_", " ") + "."),
        sentence=sentence[:1].upper() + sentence[1:],
        lengths=_listed(case.lengths),
        padding=padding + (f", {case.total} with padding" if case.total > sum(case.slots or case.lengths) else ""),
        versions=", ".join(f"{name} {version}" for name, version in versions(peer).items()),
        code=reproduction(peer.package, case, factory),
    )


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers[:-1])) + (" and " if numbers[1:] else "") + str(numbers[-1])
