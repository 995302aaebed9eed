"""The warm path gives the bytes of the cold one, at every head; so does what is kept. Pure."""

import hashlib
from collections.abc import Sequence

from counterfoil.transcript.v1.transcript_pb2 import Entry
from hypothesis import given
from hypothesis import strategies as st

from services.context.cache import Warm
from services.context.reducer import reduce, rewrites
from tests.services.context.histories import History, histories


def go_on(warm: Warm, history: History, entries: Sequence[Entry]) -> None:
    effective = reduce(entries, history.projections, open=warm.open)
    warm.extend(effective.items, {})
    if entries:
        warm.reach(entries[-1].seq, entries[-1].digest, effective.open)


def cold(history: History, through: int) -> Warm:
    warm = Warm()
    entries = history.entries[:through]
    digest = entries[-1].digest if entries else b""
    go_on(warm, history, entries)
    warm.reach(through, digest, warm.open)
    return warm


@given(
    histories(),
    st.lists(st.tuples(st.sampled_from([b"{1[", b"{2["]), st.sampled_from([b"]}", b"],s}"]))),
    st.data(),
)
def test_warm_bytes_and_digests_are_those_of_a_cold_start(
    history: History, asked: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    warm = Warm()
    bodies: list[tuple[bytes, bytes]] = []
    for head, tail in asked:
        through = data.draw(st.integers(warm.seq, len(history.entries)))
        new = history.entries[warm.seq : through]
        if rewrites(new):
            warm = cold(history, through)
        elif new:
            go_on(warm, history, new)
        if not warm.open and data.draw(st.booleans()):
            warm = Warm(
                warm.seq, warm.digest, warm.messages()
            )  # another process, from what is kept
        body, digest = warm.request(head, tail)
        assert body == cold(history, through).request(head, tail)[0]
        assert digest == hashlib.sha256(body).digest()
        assert warm.tokens == cold(history, through).tokens
        bodies.append((body, digest))
    # Nothing that was handed out changes later.
    assert all(digest == hashlib.sha256(body).digest() for body, digest in bodies)
