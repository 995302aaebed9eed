"""Decompression gives what was compressed, however it is cut, in pieces of a bounded size."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.egress.decoding import Decoder
from foundation.egress.errors import EgressError, Reason
from foundation.egress.limits import MIB, Limits

WAYS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "identity": bytes,
}


def pieces(decoder: Decoder, data: bytes, cut: int) -> list[bytes]:
    found = [
        piece
        for start in range(0, len(data), cut)
        for piece in decoder.feed(data[start : start + cut])
    ]
    decoder.end()
    return found


@given(
    st.binary(max_size=2000),
    st.integers(1, 400),
    st.sampled_from(sorted(WAYS)),
    st.integers(1, 700),
)
def test_content_survives_any_cut(content: bytes, times: int, way: str, cut: int) -> None:
    limits = Limits(expansion_max=10**6)
    data = WAYS[way](content * times)
    assert b"".join(pieces(Decoder(way, limits, "host"), data, cut)) == content * times


@given(st.binary(max_size=300), st.sampled_from(["gzip", "deflate"]))
def test_noise_is_refused_or_decompressed_but_nothing_else(noise: bytes, way: str) -> None:
    try:
        pieces(Decoder(way, Limits(), "host"), noise, 7)
    except EgressError as error:
        caught = error.reason
    else:
        caught = Reason.COMPRESSION
    assert caught is Reason.COMPRESSION


@pytest.mark.parametrize("way", ["gzip", "deflate"])
def test_a_bomb_is_stopped_at_once(way: str) -> None:
    bomb = WAYS[way](bytes(16 * MIB))
    decoder = Decoder(way, Limits(body_bytes=1000 * MIB), "host")
    sizes: list[int] = []
    with pytest.raises(EgressError):
        sizes.extend(len(piece) for piece in decoder.feed(bomb))
    assert max(sizes) <= 256 * 1024
    assert sum(sizes) <= 100 * len(bomb)
