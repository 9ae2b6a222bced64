"""A test keeps its id from run to run, whoever wrote it down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.baseline import identity

FILE = "suites/a/test_b.py"


@pytest.mark.parametrize(
    ("classname", "file", "expected"),
    [
        ("suites.a.test_b", FILE, f"{FILE}::test_x"),
        ("suites.a.test_b.TestC", FILE, f"{FILE}::TestC::test_x"),
        ("suites.a.test_b.TestC.TestD", FILE, f"{FILE}::TestC::TestD::test_x"),
        ("a.test_b.TestC", FILE, f"{FILE}::TestC::test_x"),  # pytest's root was another folder
        ("repo.suites.a.test_b", FILE, f"{FILE}::test_x"),
        ("v1.2.test_d", "v1.2/test_d.py", "v1.2/test_d.py::test_x"),
        ("other.test_z.TestC", FILE, f"{FILE}::other.test_z.TestC::test_x"),  # inherited
        ("suites.a.test_b", None, "suites.a.test_b::test_x"),
        ("", None, "test_x"),
    ],
)
def test_file_class_and_name_make_the_id(classname: str, file: str | None, expected: str) -> None:
    assert identity.identity_of("test_x", classname=classname, file=file) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("test_a[<X object at 0x7f12ab34cd56>]", "test_a[<X object at 0x...>]"),
        ("test_a[0xdeadbeef]", "test_a[0xdeadbeef]"),
        ("test_a[two\nlines]", "test_a[two lines]"),
        ("test_a[\x00\ud800]", "test_a[#x00#xD800]"),
        ("test_a[\U0001f600]", "test_a[\U0001f600]"),
        ("test_a[x@y]", "test_a[x@y]"),
        ("test_a[x@y]@group", "test_a[x@y]"),
        ("test_a@group one", "test_a"),
        ("test_a[a::b]", "test_a[a::b]"),
    ],
)
def test_what_changes_between_runs_is_no_part_of_a_name(name: str, expected: str) -> None:
    assert identity.identity_of(name, classname="suites.a.test_b", file=FILE) == f"{FILE}::{expected}"


def test_a_name_of_a_megabyte_is_shortened_and_stays_itself() -> None:
    one, other = (identity.identity_of("x" * 1_000_000 + end, classname="t", file="t.py") for end in "ab")
    assert len(one) < identity.MOST_CHARACTERS
    assert one != other


@given(st.text(max_size=500))
def test_an_id_is_one_line_of_utf_8_and_normal_twice_is_once(name: str) -> None:
    found = identity.normal(name)
    assert "\n" not in found
    assert "\t" not in found
    assert found.encode("utf-8").decode("utf-8") == found
    assert identity.normal(found) == found


@given(st.text(alphabet="ab[]:-. ", max_size=12))
def test_junit_and_a_node_id_name_the_same_test(parameters: str) -> None:
    nodeid = f"{FILE}::TestC::test_x[{parameters}]"
    classname, name = identity.split_node_id(nodeid)
    assert (classname, name) == ("suites.a.test_b.TestC", f"test_x[{parameters}]")
    assert identity.identity_of(name, classname=classname, file=FILE) == nodeid
    assert identity.class_id(nodeid) == identity.identity_of(name, classname=classname, file=None)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (f"{FILE}::TestC::test_x[a b]", f"{FILE}::TestC::test_x[a b]"),
        ("suites.a.test_b.TestC::test_x[1]", f"{FILE}::TestC::test_x[1]"),
        ("suites.a.test_b::test_x", f"{FILE}::test_x"),
        ("base.py::suites.a.test_b.TestC::test_x", f"{FILE}::TestC::test_x"),
        (f"{FILE}::test_x[<X object at 0x...>]", f"{FILE}::test_x"),
        ("org.example.CartTest::adds", None),
        ("adds", None),
    ],
)
def test_the_id_says_how_to_run_the_test_again(found: str, expected: str | None) -> None:
    assert identity.node_id(found) == expected
