"""Configurations of cases, as the texts that `harness.kinds` reads."""

from __future__ import annotations

from hypothesis import strategies as st

from harness.kinds import check_text


def configs(kind: str) -> st.SearchStrategy[str]:
    """Configuration texts of one named kind ("all", "dense", "csa", "hca"); raises CaseError for another name.

    Only the named configuration itself so far; changes go behind it ("csa,index_topk=2"), simplest first.
    """
    check_text(kind)
    return st.just(kind)
