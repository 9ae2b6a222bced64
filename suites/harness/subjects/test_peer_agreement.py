"""Three implementations on one pack, with MTP: this repository's, nemo_automodel's packed correctly, the NumPy reading.

None shares code with another. `-rP` prints the table: largest relative differences over the positions that are valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.case import Case
from harness.catalogue import find_subject
from harness.corpus import load_corpus
from harness.properties.oracle import _readings
from harness.subjects.support import kept_clear, unsupported_by
from harness.tolerance import ORACLE_F64, relative_error
from suites.harness.subjects.peers import needs_nemo, nemo

GRADIENTS = 1e-9
KINDS = ("dense", "csa", "hca", "all")


def heads(case: Case, subject: Any) -> tuple[list[Tensor], Tensor]:
    """Logits of each depth at its valid positions, and the gradient at every embedding."""
    pack = case.pack(load_corpus(None))
    leaf = subject.embeddings(pack).requires_grad_()
    seen = subject.observe(pack, embeddings=leaf)
    valid = [pack.layout.ahead(depth) >= 0 for depth in range(len(seen.depths))]
    logits = [depth.values.detach()[own] for own, depth in zip(valid, seen.depths, strict=True)]
    # Each head's sum has a weight of its own, so that none stands in for another.
    terms = [seen.sums[f"mtp{depth}" if depth else "main"] / (1 + depth) for depth in range(len(seen.depths))]
    (gradient,) = torch.autograd.grad(torch.stack(terms).sum(), leaf)
    return logits, gradient


def read(case: Case, weights: Mapping[str, Any]) -> list[Tensor]:
    """The same logits by the NumPy reading, sample by sample."""
    readings = _readings(case.v4config(), weights, case.pack(load_corpus(None)))
    found = []
    for depth in range(1 + len(readings[0].mtp)):
        of_depth = [reading.mtp[depth - 1].logits if depth else reading.logits for reading in readings]
        found.append(torch.cat([torch.from_numpy(one)[: len(one) - depth] for one in of_depth]))
    return found


@needs_nemo
@pytest.mark.parametrize("kind", KINDS)
def test_three_agree_on_a_pack(kind: str) -> None:
    theirs = find_subject(nemo("Corrected"))
    case = kept_clear(Case.from_token(f"{kind}/5.33.17.9/s3"), unsupported_by(theirs))
    config, dtype = case.v4config(), case.torch_dtype()
    own = find_subject("v4model")(config, dtype, case.seed)
    (ours, our_grad), (nemos, nemo_grad) = heads(case, own), heads(case, theirs(config, dtype, case.seed))
    numpys = read(case, own.export_weights())  # type: ignore[attr-defined]
    errors = {}
    for depth, (one, two, three) in enumerate(zip(ours, nemos, numpys, strict=True)):
        name = f"MTP {depth}" if depth else "trunk"
        errors[f"{name}: v4model, nemo_automodel"] = relative_error(one, two, floor=0.0)
        errors[f"{name}: v4model, NumPy"] = relative_error(one, three, floor=0.0)
        errors[f"{name}: nemo_automodel, NumPy"] = relative_error(two, three, floor=0.0)
    gradient = relative_error(our_grad, nemo_grad, floor=0.0)
    print(kind, *(f"  {name} {error:.1e}" for name, error in errors.items()), f"  gradients {gradient:.1e}", sep="\n")
    assert max(errors.values()) <= ORACLE_F64
    assert gradient <= GRADIENTS
