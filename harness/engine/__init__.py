"""Runs properties over drawn cases: the search in one unit, the processes, and the whole run."""

from harness.engine.decide import check_plantable, decide
from harness.engine.profiles import PROFILES, Profile, find_profile
from harness.engine.run import Plan, run

__all__ = ["PROFILES", "Plan", "Profile", "check_plantable", "decide", "find_profile", "run"]
