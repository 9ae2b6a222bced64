"""Errors of the harness: one sentence each, saying what was got, what was expected and where."""

CRASHES = (Exception, SystemExit)
"""What someone else's code may raise, to be told as a fact about it. A script that ends in sys.exit(main()) leaves by
SystemExit, also when it is imported or calls something that does."""


class HarnessError(ValueError):
    """Something the caller gave the harness cannot be used.

    The message reads `got X; expected Y; where: Z` (no third part if where is empty); the parts stay readable as
    attributes.
    """

    def __init__(self, *, got: str, expected: str, where: str = "") -> None:
        super().__init__(f"got {got}; expected {expected}" + (f"; where: {where}" if where else ""))
        self.got = got
        self.expected = expected
        self.where = where

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling of exceptions, and errors cross process borders.
        return _rebuild, (type(self), self.got, self.expected, self.where)


class CaseError(HarnessError):
    """A case, its token or its file is malformed."""


class UsageError(HarnessError):
    """A name, a file or an option on the command line cannot be used."""


class BaselineError(HarnessError):
    """A baseline is damaged, or there is none for this run; nothing can be decided."""


class HistoryError(HarnessError):
    """A file is no history of nights, or cannot be written to."""


def _rebuild(kind: type[HarnessError], got: str, expected: str, where: str) -> HarnessError:
    return kind(got=got, expected=expected, where=where)
