"""Runs properties over drawn cases: the search in one unit, the processes, and the whole run."""

from harness.engine.decide import decide
from harness.engine.profiles import PROFILES, Profile, find_profile
from harness.engine.run import Plan, run

__all__ = ["PROFILES", "Plan", "Profile", "decide", "find_profile", "run"]
