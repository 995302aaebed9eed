"""An answer that is accepted can be read by everybody who comes after, and sent back."""

import json

import pytest
from counterfoil.transcript.v1 import transcript_pb2
from hypothesis import given
from hypothesis import strategies as st

from services.context.reducer import reduce
from services.runner import answer as answers
from services.runner.adapter.assemble import Answer, whole
from services.runner.adapter.failures import ProviderFailure
from tests.services.context.histories import written
from tests.services.runner.adapter.support import assembled, start

UNUSABLE = (
    b"null",
    b"5",
    b'"x"',
    b"[]",
    b"{}",
    b'{"type":5}',
    b'{"type":null,"text":"a"}',
    b'{"type":"text"}',
    b'{"type":"text","text":null}',
    b'{"type":"tool_use","id":5,"name":"n","input":{}}',
)

ODD_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
ODD_BLOCKS = ODD_VALUES | st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "thinking", "later"]) | ODD_VALUES},
    optional={
        member: st.text(min_size=1, max_size=3) | ODD_VALUES
        for member in ("text", "id", "name", "input", "thinking")
    },
)


def body(block: bytes) -> bytes:
    return b'{"type":"message","content":[%b],"stop_reason":"end_turn","usage":{}}' % block


def read_back(answer: Answer) -> None:
    """What the runner, the reducer and the materializer do with a stored answer."""
    answers.calls_of(answer.blocks)
    answers.segments_of(answer.blocks)
    content = transcript_pb2.EntryContent(blocks=answer.blocks, envelope=answer.envelope)
    entry = transcript_pb2.Entry(
        seq=2, kind=transcript_pb2.TRANSCRIPT_ENTRY_KIND_ANSWER, content=content
    )
    for message in written(reduce([entry], {}).items):
        json.loads(message)


@pytest.mark.parametrize("block", UNUSABLE)
def test_a_block_that_no_provider_takes_back_is_a_bad_answer(block: bytes) -> None:
    with pytest.raises(ProviderFailure) as caught:
        whole(body(block))
    assert (caught.value.kind, caught.value.retryable) == ("bad_answer", True)
    with pytest.raises(ProviderFailure) as caught:
        assembled(start(0, block))
    assert caught.value.kind == "bad_answer"


@given(ODD_BLOCKS)
def test_an_accepted_answer_is_never_corrupt(block: object) -> None:
    try:
        answer = whole(body(json.dumps(block).encode()))
    except ProviderFailure:
        return
    read_back(answer)
