"""Two failures have one fingerprint while their reason is one."""

from __future__ import annotations

import pytest

from harness.baseline.fingerprint import fingerprint

SAME = [
    ("ValueError: got 17 at 0x7f00", "ValueError: got 4 at 0x81bb2c"),
    ("assert 0.25 == 1e-09", "assert -3.5 == 2"),
    ("assert [1, 2, 3] == [1]", "assert [9] == [1, 4]"),
    ("\x1b[31mValueError\x1b[0m: red", "ValueError: red"),
    ("#x1B[31mValueError#x1B[0m: red", "ValueError: red"),
    ("VIOLATED: all/5.33.17+64/s123", "VIOLATED: all/1.1/s0"),
    ("ValueError: no Falsifying example: test_a(n=3)", "ValueError: no Falsifying example: test_a(n='x')"),
    ("OSError: /tmp/pytest-of-me/pytest-12/a0", "OSError: /tmp/pytest-of-me/pytest-3/a1"),
    ("ValueError: first\nsecond 1", "ValueError: first\nother"),
    ("ValueError: id 123e4567-e89b-12d3-a456-426614174000", "ValueError: id 00000000-e89b-12d3-a456-426614174abc"),
    ("assert nan == 1.0", "assert 2.0 == inf"),
]
OTHER = [
    ("ValueError: no room", "TypeError: no room"),
    ("KeyError: 'a'", "KeyError: 'b'"),
    ("assert a == b", "assert a != b"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_changes_by_chance_is_taken_out(one: str, other: str) -> None:
    assert fingerprint(one, phase="call") == fingerprint(other, phase="call")


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_another_reason_has_another_fingerprint(one: str, other: str) -> None:
    assert fingerprint(one, phase="call") != fingerprint(other, phase="call")


def test_the_phase_and_the_type_are_part_of_it() -> None:
    assert fingerprint("assert 1 == 2", phase="call") == "call: AssertionError: assert # == #"
    assert fingerprint('failed on setup with "OSError: gone"', phase="setup") == "setup: OSError: gone"
    assert fingerprint("down", phase="call", kind="java.io.IOException") == "call: IOException: down"
    assert fingerprint("", phase="call") == "call"
