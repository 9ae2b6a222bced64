"""How much a run searches. A profile is the whole of it: nothing is read from the environment."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.catalogue import unknown
from harness.strategies.lengths import PackSize


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A named amount of search.

    cases_per_kind: layouts drawn for each property on each kind. shrink_cases: how many further cases may be spent on
    making a violating one smaller. derandomize: the same cases every time, unless a seed is given.
    """

    name: str
    cases_per_kind: int
    shrink_cases: int
    derandomize: bool
    size: PackSize = field(default_factory=PackSize)


# More than the 7, 50 and 500 wanted of full size: the first case is always the smallest that the strategy knows, one
# sample of one token, and a few more fall below the size.
PROFILES = {
    profile.name: profile
    for profile in (
        Profile(name="quick", cases_per_kind=8, shrink_cases=150, derandomize=True),
        Profile(name="ci", cases_per_kind=54, shrink_cases=400, derandomize=True),
        Profile(name="nightly", cases_per_kind=540, shrink_cases=1000, derandomize=False),
    )
}


def find_profile(name: str) -> Profile:
    """The profile of a name; raises UsageError."""
    if name not in PROFILES:
        raise unknown("profile", name, PROFILES)
    return PROFILES[name]
