"""The full packed DeepSeek-V4 model. The law: every sample is computed as if it were alone."""

from v4model import hf, presets
from v4model.config import V4Config, Yarn
from v4model.errors import ConfigError, DataError, PackError, V4Error, WeightError
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
