"""Kind and size of an image come from its header."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.journal.images import Sniffed, sniff
from tests.services.journal.pictures import gif, jpeg, png, webp

EDGES = st.integers(1, 16_000)
MAGICS = (b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff", b"RIFF\0\0\0\0WEBP", b"")


@given(EDGES, EDGES)
def test_every_format_tells_its_size(w: int, h: int) -> None:
    assert sniff(png(w, h)) == Sniffed("image/png", w, h)
    assert sniff(gif(w, h)) == Sniffed("image/gif", w, h)
    assert sniff(jpeg(w, h)) == Sniffed("image/jpeg", w, h)
    for kind in ("VP8 ", "VP8L", "VP8X"):
        assert sniff(webp(w, h, kind)) == Sniffed("image/webp", w, h)


@given(st.sampled_from(MAGICS), st.binary(max_size=200))
def test_it_reads_whatever_follows(magic: bytes, rest: bytes) -> None:
    found = sniff(magic + rest)
    if magic:
        assert found is not None
        assert (found.w > 0) == (found.h > 0)


@pytest.mark.parametrize("data", [b"", b"<svg/>", b"%PDF-1.7", b"BM1234", b"RIFF1234WAVE"])
def test_other_bytes_are_no_image(data: bytes) -> None:
    assert sniff(data) is None


def test_a_header_that_is_cut_off_tells_no_size() -> None:
    for whole in (png(), gif(3, 2), jpeg(3, 2), webp(3, 2, "VP8X")):
        for length in range(12, len(whole) - 4):
            found = sniff(whole[:length])
            assert found is None or found.w == 0 or length > 9
    assert sniff(png(0, 5)) == Sniffed("image/png", 0, 0)
