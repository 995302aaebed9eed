"""Streams: nothing is lost, doubled or reordered, wherever a client breaks off and comes back."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.support.chat import INTERRUPT, Chat, asks, custom_tool, is_idle, message, result
from tests.support.invariants import check_history
from tests.support.model import script, text, use
from tests.support.system import System

STEPS = script({"content": [text("One call."), use("decide", text="a")]}, "Done.")


@dataclass(frozen=True)
class Frame:
    """One frame as it came: SSE id, SSE event name, data."""

    id: str
    name: str
    data: bytes

    @property
    def event(self) -> dict[str, Any]:
        return json.loads(self.data)

    @property
    def position(self) -> int:
        return int(self.id.rpartition(":")[2])


@asynccontextmanager
async def raw_stream(
    system: System, session: str, last: str = "", **query: Any
) -> AsyncGenerator[AsyncIterator[Frame]]:
    """An open stream; the block begins when the headers are there."""
    headers = {"last-event-id": last} if last else {}
    request = system.http().stream(
        "GET", f"/v1/sessions/{session}/events/stream", headers=headers, params=query
    )
    async with request as response:
        assert response.status_code == 200, await response.aread()
        yield _frames(response)


async def _frames(response: httpx2.Response) -> AsyncIterator[Frame]:
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif fields:
            if fields.get("event") != "ping":
                yield Frame(fields.get("id", ""), fields["event"], fields["data"].encode())
            fields = {}


async def take(frames: AsyncIterator[Frame], number: int) -> list[Frame]:
    """The next `number` frames."""
    async with asyncio.timeout(20):
        return [await anext(frames) for _ in range(number)]


async def take_until_idle(frames: AsyncIterator[Frame], idles: int = 1) -> list[Frame]:
    """Frames up to and including the `idles`-th idle."""
    found: list[Frame] = []
    async with asyncio.timeout(20):
        while idles:
            found.append(await anext(frames))
            idles -= found[-1].name == "session.status_idle"
    return found


async def told(system: System) -> tuple[Chat, list[Frame]]:
    """A finished session with a queued message and a call, and everything a stream told of it."""
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    async with raw_stream(system, chat.id) as frames:
        await chat.send(message(STEPS))
        found = await take_until_idle(frames)
        await chat.send(message("queued"))
        (use_id,) = found[-1].event["stop_reason"]["event_ids"]
        await chat.send(result(use_id, "yes"))
        found += await take_until_idle(frames)
    check_history(await chat.history())
    return chat, found


async def test_every_frame_names_its_event_and_its_position(running_system: System) -> None:
    chat, frames = await told(running_system)
    for frame in frames:
        # Types that older clients do not know travel under a name that they accept.
        assert frame.name in (frame.event["type"], "message")
    assert [frame.id for frame in frames] == [f"{chat.id}:{n + 1}" for n in range(len(frames))]
    listed = await running_system.http().get(f"/v1/sessions/{chat.id}/events")
    final = {frame.event["id"]: frame.data for frame in frames}
    assert listed.content == b'{"data":[%b],"next_page":null}' % b",".join(
        final[event["id"]] for event in listed.json()["data"]
    )


async def test_a_queued_event_comes_twice_and_differs_only_in_its_time(
    running_system: System,
) -> None:
    _, frames = await told(running_system)
    twice: dict[str, list[bytes]] = {}
    for frame in frames:
        twice.setdefault(frame.event["id"], []).append(frame.data)
    doubled = [copies for copies in twice.values() if len(copies) == 2]
    assert len(doubled) == 2
    for first, second in doubled:
        assert b'"processed_at":null}' in first
        assert second.startswith(first.removesuffix(b"null}"))
    assert all(len(copies) <= 2 for copies in twice.values())


async def test_a_stream_goes_on_behind_every_frame(running_system: System) -> None:
    chat, frames = await told(running_system)
    for place, frame in enumerate(frames[:-1]):
        async with raw_stream(running_system, chat.id, frame.id) as again:
            assert await take(again, len(frames) - place - 1) == frames[place + 1 :]


async def test_breaking_off_behind_every_frame_loses_nothing(running_system: System) -> None:
    system = running_system
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    await chat.send(message(STEPS))
    found: list[Frame] = []
    last = f"{chat.id}:0"
    while not found or found[-1].event.get("stop_reason") != {"type": "end_turn"}:
        async with raw_stream(system, chat.id, last) as frames:
            found += await take(frames, 1)
        last = found[-1].id
        if asks(found[-1].event):
            (use_id,) = found[-1].event["stop_reason"]["event_ids"]
            await chat.send(result(use_id, "yes"))
        if found[-1].name == "session.status_idle":
            assert len({frame.id for frame in found}) == len(found)
            if not asks(found[-1].event):
                break
    assert [frame.position for frame in found] == list(range(1, len(found) + 1))
    async with raw_stream(system, chat.id, f"{chat.id}:0") as frames:
        assert await take(frames, len(found)) == found


async def test_a_position_of_another_session_is_refused(running_system: System) -> None:
    system = running_system
    one, other = await Chat.open(system), await Chat.open(system)
    await one.say("hello")
    for last in (f"{one.id}:1", f"{other.id}:x", "nonsense", f"{other.id}:-1"):
        response = await system.http().get(
            f"/v1/sessions/{other.id}/events/stream", headers={"last-event-id": last}
        )
        assert response.status_code == 400, last
        assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("after", range(0, 12, 2))
async def test_open_list_dedupe_sees_every_entry_once(running_system: System, after: int) -> None:
    """A client that comes in the middle opens, lists, and drops what it knows."""
    system = running_system
    chat = await Chat.open(system)
    async with raw_stream(system, chat.id) as witness:
        await chat.send(message(script("A text.", "Unused.")))
        before = await take(witness, after) if after else []
        async with chat.stream() as stream:
            listed = await chat.history()
            assert {f.event["id"] for f in before} <= {event["id"] for event in listed}
            await chat.send(message("more"))
            seen = {event["id"]: event for event in listed}
            while not _told_twice(list(seen.values())):
                event = await stream.next()
                seen.pop(event["id"], None)
                seen[event["id"]] = event
    history = await chat.history()
    assert list(seen.values()) == history


def _told_twice(events: Sequence[dict[str, Any]]) -> bool:
    said = [event for event in events if event["type"] == "user.message"]
    done = all(event["processed_at"] for event in said) and len(said) == 2
    statuses = [event for event in events if event["type"].startswith("session.status_")]
    return done and bool(statuses) and is_idle(statuses[-1])


async def test_a_list_behind_the_headers_and_the_stream_miss_nothing(
    running_system: System,
) -> None:
    """Whatever is committed while a stream opens is in the list or in the stream."""
    system = running_system
    chat = await Chat.open(system)
    writer = Chat(system, chat.id, system.client())
    sent = asyncio.Event()

    async def write() -> None:
        while True:
            await writer.send(INTERRUPT)
            sent.set()

    writing = asyncio.create_task(write())
    seen: list[tuple[list[str], list[str]]] = []
    try:
        for _ in range(15):
            sent.clear()
            await sent.wait()
            async with raw_stream(system, chat.id) as frames:
                listed = [event["id"] for event in await chat.history()]
                live = [frame.event["id"] for frame in await take(frames, 3)]
            seen.append((listed, live))
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    history = [event["id"] for event in await chat.history()]
    for listed, live in seen:
        first = history.index(live[0])
        assert history[first : first + 3] == live
        assert set(history[:first]) <= set(listed), "committed before the headers, not listed"


async def test_pages_hold_every_event_once(running_system: System) -> None:
    system = running_system
    chat, _ = await told(system)
    whole = (await system.http().get(f"/v1/sessions/{chat.id}/events")).json()["data"]
    for order in ("asc", "desc"):
        found: list[Any] = []
        page: dict[str, Any] | None = {}
        while page is not None:
            answer = await system.http().get(
                f"/v1/sessions/{chat.id}/events", params={"limit": 3, "order": order, **page}
            )
            body = answer.json()
            found += body["data"]
            page = {"page": body["next_page"]} if body["next_page"] else None
        assert found == (whole if order == "asc" else whole[::-1])


async def test_the_stream_of_a_deleted_session_ends(running_system: System) -> None:
    system = running_system
    chat = await Chat.open(system)
    await chat.say("hello")
    async with raw_stream(system, chat.id) as frames:
        await chat.client.beta.sessions.delete(chat.id)
        (last,) = [frame async for frame in frames]
    assert last.name == "session.deleted"
    gone = await system.http().get(f"/v1/sessions/{chat.id}/events/stream")
    assert gone.status_code == 404


async def test_previews_lead_to_the_message_of_the_same_id(running_system: System) -> None:
    chat = await Chat.open(running_system)
    said = "A text that comes in pieces. " * 10
    deltas: dict[str, Any] = {"event_deltas[]": ["agent.message", "agent.thinking"]}
    async with raw_stream(running_system, chat.id, **deltas) as frames:
        await chat.send(
            message(script({"content": [text(said)], "chunks": 5, "chunk_delay_ms": 20}))
        )
        found = await take_until_idle(frames)
    kinds = [frame.name for frame in found]
    (final,) = [frame.event for frame in found if frame.event["type"] == "agent.message"]
    previews = [frame for frame in found if frame.event["type"].startswith("event_")]
    assert previews
    assert not [frame.id for frame in previews if frame.id], "nobody can resume at a preview"
    start = previews[0].event
    assert start["type"] == "event_start"
    assert start["event"] == {"id": final["id"], "type": "agent.message"}
    pieces = [frame.event["delta"]["content"]["text"] for frame in previews[1:]]
    assert said.startswith("".join(pieces))
    places = [n for n, frame in enumerate(found) if frame in previews]
    begin = kinds.index("span.model_request_start")
    assert begin < min(places) <= max(places) < kinds.index("span.model_request_end")


async def test_a_slow_reader_is_cut_off_and_comes_back(running_system: System) -> None:
    # More than the queue (16 MiB) and the sockets' buffers hold.
    number = 48
    system = running_system
    chat = await Chat.open(system)
    await chat.send(message(script({"content": [text("held")], "hold": "slow"})))
    await system.model.held("slow")
    megabyte = "x" * 1_000_000
    async with raw_stream(system, chat.id) as frames:
        for place in range(number):
            await chat.send(message(f"{place} {megabyte}"))
        found = [frame async for frame in frames]
    assert found[-1].name == "error", "it is told, and the connection ends"
    found.pop()
    numbers = [int(frame.event["content"][0]["text"].split()[0]) for frame in found]
    assert numbers == list(range(len(numbers))), "nothing is skipped"
    assert len(numbers) < number
    last = found[-1].id if found else f"{chat.id}:5"
    async with raw_stream(system, chat.id, last) as frames:
        rest = await take(frames, number - len(numbers))
    assert [frame.event["content"][0]["text"].split()[0] for frame in rest] == [
        str(place) for place in range(len(numbers), number)
    ]
