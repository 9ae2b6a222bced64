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

    With `--cp`, for each number of ranks: ranked_per_kind layouts for equality with one rank, simulated in one process,
    and processes_per_kind on gloo processes; meshes_per_kind for experts and pipelines, ranked_others_per_kind for the
    properties of one rank. wants_strata: the run is undecided when a stratum is not met. most_vacuous: the share of a
    property's layouts that may be vacuous before the property counts as undecided.
    """

    name: str
    cases_per_kind: int
    shrink_cases: int
    derandomize: bool
    ranked_per_kind: int
    ranked_others_per_kind: int
    meshes_per_kind: int
    processes_per_kind: int
    wants_strata: bool
    most_vacuous: float = 0.25
    size: PackSize = field(default_factory=PackSize)


# More than the 7, 50 and 500 wanted of full size: the first case is always the smallest that the strategy knows, one
# sample of one token, and a few more fall below the size.
PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            name="quick",
            cases_per_kind=8,
            shrink_cases=150,
            derandomize=True,
            ranked_per_kind=8,
            ranked_others_per_kind=3,
            meshes_per_kind=3,
            processes_per_kind=2,
            wants_strata=False,
        ),
        Profile(
            name="ci",
            cases_per_kind=54,
            shrink_cases=400,
            derandomize=True,
            ranked_per_kind=75,
            ranked_others_per_kind=8,
            meshes_per_kind=5,
            processes_per_kind=5,
            wants_strata=True,
        ),
        Profile(
            name="nightly",
            cases_per_kind=540,
            shrink_cases=1000,
            derandomize=False,
            ranked_per_kind=750,
            ranked_others_per_kind=80,
            meshes_per_kind=50,
            processes_per_kind=60,
            wants_strata=True,
        ),
    )
}


PEERS = Profile(
    name="peers",
    cases_per_kind=5,
    shrink_cases=24,
    derandomize=True,
    ranked_per_kind=0,
    ranked_others_per_kind=0,
    meshes_per_kind=0,
    processes_per_kind=0,
    wants_strata=False,
    most_vacuous=1.0,
)
"""For `harness peers`: most cases of a public model violate a property or none does, and six models share ten minutes.
Suites have no such profile."""


def find_profile(name: str) -> Profile:
    """The profile of a name; raises UsageError."""
    known = {**PROFILES, PEERS.name: PEERS}
    if name not in known:
        raise unknown("profile", name, PROFILES)
    return known[name]
