"""One id scheme: sortable new ids, deterministic derived ones."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation import ids

_FORM = re.compile(r"^[a-z]+_[0-9a-hjkmnp-tv-z]{26}$")

coordinates = st.lists(st.one_of(st.text(), st.integers(), st.binary()), max_size=4)


@pytest.mark.parametrize("kind", sorted(ids.PREFIXES))
def test_every_kind_has_a_prefix_of_its_own_and_26_characters(kind: str) -> None:
    assert _FORM.match(ids.new(kind))
    assert _FORM.match(ids.derived(kind, "a", 1))
    assert ids.new(kind).startswith(ids.PREFIXES[kind] + "_")


def test_prefixes_are_unique() -> None:
    assert len(set(ids.PREFIXES.values())) == len(ids.PREFIXES)


def test_new_ids_rise_strictly() -> None:
    made = [ids.new("event") for _ in range(5000)]
    assert made == sorted(set(made))


def test_a_forked_child_makes_other_ids_than_its_parent() -> None:
    ids.new("event")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, ids.new("event").encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 64).decode() != ids.new("event")
    os.close(read)
    os.close(write)


@given(coordinates)
def test_derived_ids_repeat(parts: list[str | int | bytes]) -> None:
    assert ids.derived("entry", *parts) == ids.derived("entry", *parts)


@given(coordinates, coordinates)
def test_derived_ids_tell_coordinates_apart(
    one: list[str | int | bytes], two: list[str | int | bytes]
) -> None:
    same = [(type(p), p) for p in one] == [(type(p), p) for p in two]
    assert (ids.derived("entry", *one) == ids.derived("entry", *two)) == same


def test_derived_ids_tell_kinds_apart() -> None:
    assert ids.derived("entry", 1).split("_")[1] != ids.derived("event", 1).split("_")[1]


def test_derived_ids_are_those_of_earlier_versions() -> None:
    made = ids.derived("event", "sesn_a", "ü", 7, -3, b"\0x")
    assert made == "sevt_s9y1r593b6jv372yyz0j92hss6"
