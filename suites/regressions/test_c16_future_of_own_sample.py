"""query_sees_no_future holds on one case.

It was violated once with fault C16 planted: query_sees_no_future: in the trunk query sample 1, position 4 (token 5)
read sample 1, position 5 (token 6) through the pool branch of layers.0.self_attn, where it reads the pooled row of
tokens 4 to 7 (sample 1, from position 3 on): logits moved under other token ids, by 1.48 where no difference is
allowed.
"""

from __future__ import annotations

from harness.case import Case
from harness.catalogue import find_property, find_subject
from harness.corpus import load_corpus
from harness.engine import decide
from harness.verdict import Outcome

CASE = Case.from_token("csa/1.7/s0")


def test_query_sees_no_future() -> None:
    prop, subject = find_property("query_sees_no_future"), find_subject("v4model")
    verdict = decide(prop, subject, CASE, load_corpus(None), fault=None)
    told = verdict.reason if verdict.witness is None else verdict.witness.sentence()
    assert verdict.outcome is Outcome.HOLDS, told
