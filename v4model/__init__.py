"""The full packed DeepSeek-V4 model. The law: every sample is computed as if it were alone.

Names that need torch are imported when first used, so that `v4model data` and caches of packs start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from v4model import presets
from v4model.config import V4Config, Yarn
from v4model.errors import ConfigError, DataError, PackError, V4Error, WeightError

if TYPE_CHECKING:
    from v4model import hf
    from v4model.model import V4Model, V4Output
    from v4model.pack import Pack, PackLayout

__all__ = [
    "ConfigError",
    "DataError",
    "Pack",
    "PackError",
    "PackLayout",
    "V4Config",
    "V4Error",
    "V4Model",
    "V4Output",
    "WeightError",
    "Yarn",
    "hf",
    "presets",
]

_HOMES = {
    "V4Model": "v4model.model",
    "V4Output": "v4model.model",
    "Pack": "v4model.pack",
    "PackLayout": "v4model.pack",
}


def __getattr__(name: str) -> Any:
    if name == "hf":
        return import_module("v4model.hf")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
