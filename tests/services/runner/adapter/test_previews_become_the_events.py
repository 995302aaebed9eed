"""Previews carry the ids and indexes of the events that the answer becomes. Pure."""

from counterfoil.ledger.v1 import turn_pb2
from hypothesis import given
from hypothesis import strategies as st

from services.runner.adapter.assemble import Piece
from services.runner.answer import segments_of
from services.runner.previews import Previewer
from tests.services.runner.adapter.support import BEGIN, assembled, delta, pieces, start

KINDS = {
    "text": b'{"type":"text","text":""}',
    "thinking": b'{"type":"thinking","thinking":"","signature":""}',
    "call": b'{"type":"tool_use","id":"t","name":"n","input":{}}',
    "other": b'{"type":"hologram"}',
}
BLOCKS = st.lists(
    st.tuples(st.sampled_from(list(KINDS)), st.lists(st.text("ab", max_size=3), max_size=3)),
    max_size=6,
)


def shown(found: list[Piece]) -> list[turn_pb2.Preview]:
    previewer = Previewer(lambda index: f"sevt_{index}")
    return [preview for piece in found for preview in previewer.add(piece)]


@given(BLOCKS)
def test_accumulated_previews_are_the_segments(blocks: list[tuple[str, list[str]]]) -> None:
    frames: list[tuple[str, bytes]] = []
    for index, (kind, texts) in enumerate(blocks):
        frames.append(start(index, KINDS[kind]))
        if kind == "text":
            frames += [delta(index, type="text_delta", text=text) for text in texts]
    segments = segments_of(assembled(*frames).blocks)
    events: dict[str, tuple[str, list[str]]] = {}
    for preview in shown(pieces([BEGIN, *frames])):
        if not preview.HasField("text"):
            assert preview.event_id not in events
            events[preview.event_id] = (preview.type, [])
            continue
        content = events[preview.event_id][1]
        assert preview.content_index <= len(content), "an index that skips one is refused"
        if preview.content_index == len(content):
            content.append("")
        content[preview.content_index] += preview.text
    assert list(events) == [f"sevt_{segment.first_block_index}" for segment in segments]
    for segment, (type_, content) in zip(segments, events.values(), strict=True):
        assert type_ == f"agent.{segment.kind}"
        # Empty blocks at the end of a run are never shown: what was shown is a prefix.
        padded = [*content, *[""] * (len(segment.texts) - len(content))]
        assert tuple(padded) == segment.texts


def test_thinking_is_only_announced() -> None:
    (preview,) = shown([Piece(3, "thinking", "")])
    assert preview == turn_pb2.Preview(event_id="sevt_3", type="agent.thinking")
