"""What every suite shares: one torch thread a worker, and Hypothesis profiles that nothing outside can change."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.database import DirectoryBasedExampleDatabase

pytest_plugins = ("harness.pytest_results",)

# Every field of `settings` is set in every profile. A field left out would be filled by Hypothesis from the profile
# that is active when ours is built, and Hypothesis activates its own "ci" profile by itself where CI is set.
_COMMON: dict[str, Any] = {
    "backend": "hypothesis",
    "database": DirectoryBasedExampleDatabase(Path(__file__).parent / ".hypothesis" / "examples"),
    "deadline": None,  # a first call builds tables and caches; its time says nothing about correctness
    "phases": (Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink),
    "print_blob": True,
    "report_multiple_bugs": False,  # one minimal witness reads better than several
    "stateful_step_count": 50,
    "suppress_health_check": (HealthCheck.too_slow,),  # a forward and backward of the model is slow by nature
    "verbosity": Verbosity.normal,
}
# quick and ci repeat the same examples everywhere, so that red means the change did it; nightly explores. Hypothesis
# refuses a database together with derandomize: a failing example comes back by itself.
PROFILES: dict[str, dict[str, Any]] = {
    "quick": _COMMON | {"derandomize": True, "max_examples": 25, "database": None},
    "ci": _COMMON | {"derandomize": True, "max_examples": 200, "database": None},
    "nightly": _COMMON | {"derandomize": False, "max_examples": 2000},
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--profile``: how many examples each property is tried on."""
    parser.addoption(
        "--profile",
        choices=sorted(PROFILES),
        default="quick",
        help="how much to try: quick (default), ci or nightly",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the chosen profile by name, over the one that Hypothesis may have chosen at its import."""
    name = config.getoption("profile")
    # Registered under our own prefix: Hypothesis already owns a profile called "ci".
    settings.register_profile(f"v4pack-{name}", settings(**PROFILES[name]))
    settings.load_profile(f"v4pack-{name}")


def pytest_results_facts(config: pytest.Config) -> dict[str, str]:
    """What a baseline of these suites holds for, and the versions and the seed beside it.

    From metadata, because the process that writes results under xdist has no other reason to import torch. A local part
    of torch's version, such as +cpu, names the wheel and not the code.
    """
    name = config.getoption("profile")
    return {
        "device": "cpu",  # every suite puts its model there, also on a machine with GPUs
        "dtype": "float64",
        "torch": version("torch").partition("+")[0],
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "megatron-core": version("megatron-core"),
        "profile": name,
        "gates": "none",  # no suite is opened or closed by an option or a variable
        "hypothesis": hypothesis.__version__,
        "seed": "derandomized" if PROFILES[name]["derandomize"] else "drawn",
    }


def pytest_runtest_setup() -> None:
    """Keep torch at one thread in this worker; xdist already runs one worker a core.

    Suites that never import torch do not pay for its import.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def profile(pytestconfig: pytest.Config) -> str:
    """The name given to ``--profile``."""
    name: str = pytestconfig.getoption("profile")
    return name
