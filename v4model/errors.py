"""Errors of the package: each says what was got, what was expected, and where."""

from __future__ import annotations


class V4Error(ValueError):
    """An input that cannot be used, told as got / expected / where.

    Args:
        got: what arrived, with its value.
        expected: what would have been accepted.
        where: the place, such as "sample 3 of 7, tokens [512, 640)"; empty when there is only one.
    """

    def __init__(self, *, got: str, expected: str, where: str = "") -> None:
        self.got, self.expected, self.where = got, expected, where
        super().__init__(f"got {got}; expected {expected}" + (f"; where: {where}" if where else ""))

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling of exceptions, and errors cross process borders.
        return (_rebuild, (type(self), self.got, self.expected, self.where))


def _rebuild(kind: type[V4Error], got: str, expected: str, where: str) -> V4Error:
    return kind(got=got, expected=expected, where=where)


class PackError(V4Error):
    """A pack layout, or tokens that do not fit one."""


class ConfigError(V4Error):
    """A model configuration that no V4 model has."""


class WeightError(V4Error):
    """A missing, unexpected or misshapen tensor."""


class DataError(V4Error):
    """Training text that cannot become samples."""


class UnsupervisedError(DataError):
    """A record in which nothing is learned: no answer, or no label of one."""
