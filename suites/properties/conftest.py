"""The units of a run as tests, in the size of the profile that pytest was given."""

from __future__ import annotations

from functools import cache

import pytest

from harness.catalogue import properties
from harness.corpus import load_corpus
from harness.engine import Plan, find_profile
from harness.engine.unit import Work

SIZES = (1, 2, 4)


@cache
def plan_of(profile: str, cp: tuple[int, ...]) -> Plan:
    names = tuple(prop.name for prop in properties())
    return Plan(properties=names, subject="v4model", profile=find_profile(profile), corpus=load_corpus(None), cp=cp)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for argument, cp in (("unit", ()), ("ranked_unit", SIZES)):
        if argument in metafunc.fixturenames:
            units = plan_of(metafunc.config.getoption("profile"), cp).units()
            metafunc.parametrize(argument, units, ids=[unit.label for unit in units])


@pytest.fixture
def work(profile: str) -> Work:
    """What all units share: the model of this repository, built-in text, the profile's own draws."""
    plan = plan_of(profile, ())
    return Work(subject=plan.subject, profile=plan.profile, corpus=plan.corpus, seed=None, fault=None)
