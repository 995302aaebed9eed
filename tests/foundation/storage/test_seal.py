"""Sealed values open in their own place, with a key of the ring, unchanged, and nowhere else."""

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.storage import ConfigurationError, SealBroken, SealRing

RING = SealRing("a", {"a": bytes(32)})
IDENTITY = st.lists(st.text(max_size=5) | st.integers(), max_size=4).map(tuple)


@given(st.binary(max_size=300), IDENTITY)
def test_what_was_sealed_opens(plaintext: bytes, identity: tuple[str | int, ...]) -> None:
    assert RING.open(RING.seal(plaintext, *identity), *identity) == plaintext


@given(IDENTITY, IDENTITY)
def test_a_sealed_value_does_not_open_in_another_row(
    identity: tuple[str | int, ...], other: tuple[str | int, ...]
) -> None:
    if [(type(part), part) for part in identity] == [(type(part), part) for part in other]:
        return
    with pytest.raises(SealBroken):
        RING.open(RING.seal(b"content", *identity), *other)


def test_what_was_sealed_in_earlier_versions_opens() -> None:
    sealed = bytes.fromhex("0101611bad6f9ca45984de982763d0370d4a6d3dafa4448af05e205b8864d3787ed64b")
    assert RING.open(sealed, "events", "body", "ü", 12, -1) == b"kept"


def test_every_changed_byte_is_noticed() -> None:
    sealed = RING.seal(b"the content", "table", 7)
    for position in range(len(sealed)):
        changed = bytearray(sealed)
        changed[position] ^= 1
        with pytest.raises(SealBroken) as broken:
            RING.open(bytes(changed), "table", 7)
        assert "content" not in str(broken.value)
    for length in range(len(sealed)):
        with pytest.raises(SealBroken):
            RING.open(sealed[:length], "table", 7)


def test_equal_values_are_sealed_differently() -> None:
    assert RING.seal(b"same", 1) != RING.seal(b"same", 1)


def test_an_opener_opens_what_lies_below_its_first_parts() -> None:
    opener = RING.opener("table", "thread")
    assert opener.open(RING.seal(b"content", "table", "thread", 7), 7) == b"content"
    for other in (("table", "thread", 8), ("table", "other", 7), ("table", "thread", "7")):
        with pytest.raises(SealBroken):
            opener.open(RING.seal(b"content", *other), 7)


def test_after_a_rotation_old_values_open_and_new_ones_use_the_new_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    old = SealRing.generate(path)
    sealed = old.seal(b"before", 1)
    new = SealRing.rotate(path)
    assert new.active != old.active
    reloaded = SealRing.load(path)
    assert reloaded.active == new.active
    assert reloaded.open(sealed, 1) == b"before"
    with pytest.raises(SealBroken, match="not in the key ring"):
        old.open(reloaded.seal(b"after", 1), 1)


def test_a_generated_ring_is_private_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    SealRing.generate(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        SealRing.generate(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_ring_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    SealRing.generate(path)
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        SealRing.load(path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"active": "secret-word"}',
        '{"active": "b", "keys": {"a": "AAAA"}}',
        '{"active": "a", "keys": {"a": "secret-word!"}}',
        '{"active": "a", "keys": {"a": "AAAA"}}',
        '{"active": "a", "keys": {"a": 7}}',
        '{"active": 7, "keys": {"7": "AAAA"}}',
        json.dumps({"active": "x" * 65, "keys": {"x" * 65: "A" * 43 + "="}}),
    ],
)
def test_a_malformed_ring_is_refused_without_showing_its_content(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError) as refused:
        SealRing.load(path)
    assert "secret-word" not in str(refused.value)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        SealRing.load(tmp_path / "missing")
