"""Frames tell lists of parts apart; a chain link depends on all before it; salts hide content."""

from hypothesis import given
from hypothesis import strategies as st

from foundation import digests

parts = st.lists(st.binary(max_size=20), max_size=5)


@given(parts, parts)
def test_frames_are_equal_only_for_equal_parts(one: list[bytes], two: list[bytes]) -> None:
    assert (digests.frame(*one) == digests.frame(*two)) == (one == two)


@given(st.binary(), st.binary())
def test_domains_separate(one: bytes, two: bytes) -> None:
    assert digests.digest("a", one) != digests.digest("b", two)


def test_a_commitment_needs_its_salt() -> None:
    one, two = digests.new_salt(), digests.new_salt()
    assert digests.commitment(one, b"body") != digests.commitment(two, b"body")
    assert digests.commitment(one, b"body") == digests.commitment(one, b"body")


def test_a_chain_link_depends_on_log_previous_header_and_commitment() -> None:
    chain = digests.Chain("counterfoil.log.v1", "w/s")
    other = digests.Chain("counterfoil.log.v1", "w/t")
    base = chain.next(b"", b"h", b"c")
    changed = {
        other.next(b"", b"h", b"c"),
        chain.next(b"p", b"h", b"c"),
        chain.next(b"", b"i", b"c"),
        chain.next(b"", b"h", b"d"),
    }
    assert base not in changed
    assert len(changed) == 4


def test_chain_links_are_those_of_earlier_versions() -> None:
    committed = digests.commitment(b"s" * 32, b"body")
    link = digests.Chain("counterfoil.log.v1", "w/s").next(b"", b"h" * 300, committed)
    assert link.hex() == "d018458587215dfb530a0ea4ac8ed0e696d4e4e2d703b521b7daec00bd0a6ee3"
