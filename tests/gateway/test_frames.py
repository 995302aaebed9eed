"""Frames that every client version decodes, and positions that it can continue from."""

import json

import pytest
from counterfoil.ledger.v1 import events_pb2
from counterfoil.types.v1 import annotations_pb2
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import Failure
from gateway import frames
from tests.gateway.support import SESSION, frame


def public_types() -> set[str]:
    descriptor = events_pb2.DESCRIPTOR.message_types_by_name["Event"]
    tags = {f.GetOptions().Extensions[annotations_pb2.json_tag] for f in descriptor.fields}
    return tags - {""}


NEWER = {"session.usage", *(type for type in public_types() if type.startswith("workflow_run."))}
"""Types of the contract that older clients do not know by name."""


def test_a_frame_has_name_id_and_one_line_of_data() -> None:
    found = frames.render([frame(7, "agent.message", '{"a":1}')], SESSION)
    assert found == f'event: agent.message\nid: {SESSION}:7\ndata: {{"a":1}}\n\n'.encode()


def test_a_preview_has_no_id() -> None:
    found = frames.render([frame(0, "event_delta", "{}")], SESSION)
    assert found == b"event: event_delta\ndata: {}\n\n"


def test_a_batch_is_its_frames_in_order() -> None:
    found = frames.render([frame(1, "user.message"), frame(2, "session.usage")], SESSION)
    assert [line for line in found.split(b"\n") if line.startswith((b"event", b"id"))] == [
        b"event: user.message",
        f"id: {SESSION}:1".encode(),
        b"event: message",
        f"id: {SESSION}:2".encode(),
    ]
    assert frames.render([], SESSION) == b""


@pytest.mark.parametrize("type_", sorted(public_types()))
def test_types_of_the_contract_have_names_that_older_clients_accept(type_: str) -> None:
    name = frames.render([frame(1, type_)], SESSION).split(b"\n")[0].decode()
    assert name == f"event: {'message' if type_ in NEWER else type_}"


def test_clients_that_know_one_name_get_that_name() -> None:
    found = frames.render([frame(1, "user.message"), frame(0, "event_start")], "s", catch_all=True)
    assert found.count(b"event: message\n") == 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON, st.sampled_from([None, 1, "\t"]))
def test_line_breaks_between_tokens_change_nothing(value: object, indent: int | str | None) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent).replace("\n", "\r\n")
    raw = frames.render([frame(3, "user.message", text)], "s")
    assert raw.endswith(b"\n\n")
    lines = raw[:-2].split(b"\n")
    assert [line.split(b":")[0] for line in lines] == [b"event", b"id", b"data"]
    assert b"\r" not in raw
    assert json.loads(lines[2].removeprefix(b"data: ")) == value


@pytest.mark.parametrize("position", [0, 1, 10**17])
def test_a_position_is_read_back(position: int) -> None:
    assert frames.position_behind(f"{SESSION}:{position}", SESSION) == position


@pytest.mark.parametrize(
    "value",
    [
        "7",
        ":7",
        SESSION,
        f"{SESSION}:",
        f"{SESSION}:-1",
        f"{SESSION}:x",
        f"{SESSION}:\u0663",
        f"{SESSION}:{10**19}",
        f"{SESSION}: 1",
        "a:1:",
        "sesn_other:1",
        "x" * 5000,
    ],
)
def test_any_other_last_event_id_is_refused(value: str) -> None:
    with pytest.raises(Failure) as caught:
        frames.position_behind(value, SESSION)
    assert caught.value.path == "Last-Event-ID"
    assert len(caught.value.text) < 200
