"""A configuration with some fields changed, as a command line writes them."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from v4model.config import V4Config
from v4model.errors import ConfigError


def with_changes(config: V4Config, changes: Mapping[str, str], *, where: str) -> V4Config:
    """The configuration with each named field set to what its text says.

    Whole numbers, floats, `true`, `false` and `none` are written plainly, tuples with colons
    (`compress_ratios=0:4:16:4:0:4`).

    Raises:
        ConfigError: an unknown field, a value of the wrong type, or sizes that do not fit together.
    """
    known = {field.name for field in fields(config)}
    kinds = typing.get_type_hints(type(config))
    values: dict[str, Any] = {}
    for name, text in changes.items():
        if name not in known:
            raise ConfigError(got=f"field {name!r}", expected="a field of V4Config", where=where)
        values[name] = _parse(name, text, kinds[name], where=where)
    return replace(config, **values)


def _parse(name: str, text: str, kind: Any, *, where: str) -> Any:
    choices = typing.get_args(kind) or (kind,)
    try:
        if typing.get_origin(kind) is tuple:
            return tuple(int(part) for part in text.split(":"))
        if text == "none" and type(None) in choices:
            return None
        if bool in choices and text in ("true", "false"):
            return text == "true"
        if int in choices:
            return int(text)
        if float in choices:
            return float(text)
    except ValueError:
        pass
    raise ConfigError(got=f"{name}={text}", expected=f"a value of type {_type_name(kind)}", where=where)


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
