"""A fork: what its model sees is byte-equal to what the source's model had seen, and its own."""

import json

import httpx2
from counterfoil.files.v1 import artifacts_pb2, artifacts_pb2_grpc
from counterfoil.journal.v1 import journal_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import reference_pb2

from foundation import ids
from foundation.outcomes import MAY_HAVE_RUN_TEXT
from tests.laws.forking import (
    CALLS,
    CONTINUED,
    PLAIN,
    PROBE,
    TURNS,
    erased,
    request_of,
    talk,
    thread_of,
    turn,
)
from tests.support.chat import INTERRUPT, Chat, is_idle, message, result, types_of
from tests.support.invariants import check_chains, check_everything
from tests.support.model import script, text, use
from tests.support.system import System
from tests.support.waiting import eventually


async def test_a_fork_asks_what_the_source_asked_at_every_boundary(
    running_system: System,
) -> None:
    chat, ends = await talk(running_system, *TURNS)
    forks = [await chat.fork(end) for end in ends]
    asked = {one.body for one in await running_system.model.asked()}
    for number, fork in enumerate(forks[:-1], start=1):
        # The source was told the same at this place: the whole request is the same.
        found = await request_of(fork, TURNS[number] + " " * number)
        assert found.body in asked, number
    at_end = await request_of(forks[-1], PROBE)
    assert at_end.body == (await request_of(chat, PROBE)).body
    for fork in forks:
        await check_everything_of_a_fork(fork)


async def check_everything_of_a_fork(fork: Chat) -> None:
    """As of every session; other sessions asked the model too."""
    thread = await check_chains(fork)
    found = await running_transcript(fork, thread)
    names = {id_ for entry in found for id_ in (entry.id, entry.turn_id)}
    assert len(names) == len({entry.id for entry in found}) + len({e.turn_id for e in found})
    referred = [result.operation_id for entry in found for result in entry.content.results]
    if not referred:
        return
    operations = await fork.system.journal.GetOperations(
        journal_pb2.GetOperationsRequest(thread=thread, operation_ids=referred)
    )
    assert [one.id for one in operations.operations] == referred


async def running_transcript(
    fork: Chat, thread: reference_pb2.ThreadRef
) -> list[transcript_pb2.Entry]:
    listed = await fork.system.transcript.ListEntries(
        transcript_pb2.ListEntriesRequest(thread=thread)
    )
    return list(listed.entries)


async def test_a_fork_of_a_fork_is_the_same_history(running_system: System) -> None:
    chat, ends = await talk(running_system, PLAIN, CALLS)
    # Each is forked while the one before may still be copied.
    first = await chat.fork(ends[0])
    second = await first.fork()
    third = await second.fork()
    asked = {one.body for one in await running_system.model.asked()}
    for fork in (third, second, first):
        assert (await request_of(fork, CALLS + " ")).body in asked
    # And once they have turns of their own.
    inner = await third.fork()
    probed = await request_of(inner, PROBE)
    assert probed.body == (await request_of(chat, PROBE)).body


async def test_a_fork_has_only_its_own_events_and_says_where_it_is_from(
    running_system: System,
) -> None:
    chat, ends = await talk(running_system, PLAIN, PLAIN)
    http = running_system.http()
    answer = await http.post(
        f"/v1/sessions/{chat.id}/fork",
        json={"at_event_id": ends[0]["id"], "title": "a branch", "metadata": {"branch": "1"}},
    )
    assert answer.status_code == 200, answer.text
    made = answer.json()
    origin = {"session_id": chat.id, "event_id": ends[0]["id"]}
    assert (made["title"], made["metadata"], made["forked_from"]) == (
        "a branch",
        {"branch": "1"},
        origin,
    )
    source = (await http.get(f"/v1/sessions/{chat.id}")).json()
    assert "forked_from" not in source
    for name in ("agent", "environment_id"):
        assert made[name] == source[name]
    assert (made["status"], made["usage"]["input_tokens"]) == ("idle", 0)
    read = (await http.get(f"/v1/sessions/{made['id']}")).json()
    assert read["forked_from"] == origin
    assert (await http.get(f"/v1/sessions/{made['id']}/events")).json()["data"] == []
    listed = (await http.get("/v1/sessions")).json()["data"]
    assert next(one for one in listed if one["id"] == made["id"])["forked_from"] == origin


async def test_what_the_request_leaves_out_is_the_source_s(running_system: System) -> None:
    chat, ends = await talk(running_system, PLAIN)
    http = running_system.http()
    update = {"title": "original", "metadata": {"a": "1"}}
    await http.post(f"/v1/sessions/{chat.id}", json=update)
    path = f"/v1/sessions/{chat.id}/fork"
    same = (await http.post(path, json={})).json()
    assert (same["title"], same["metadata"]) == ("original", {"a": "1"})
    assert same["forked_from"]["event_id"] == ends[0]["id"]
    other = (await http.post(path, json={"title": None, "metadata": {}})).json()
    assert (other["title"], other["metadata"]) == (None, {})


async def test_a_session_without_a_finished_turn_is_forked_empty(running_system: System) -> None:
    chat = await Chat.open(running_system)
    held = script({"content": [text("Slow.")], "hold": "fork-empty"})
    async with chat.stream() as stream:
        await chat.send(message(held))
        await running_system.model.held("fork-empty")
        fork = await chat.fork()
        body = (await running_system.http().get(f"/v1/sessions/{fork.id}")).json()
        assert body["forked_from"] == {"session_id": chat.id, "event_id": None}
        found = await request_of(fork, PROBE)
        assert len(found.messages) == 1
        await running_system.model.release("fork-empty")
        await stream.until(is_idle)


async def test_a_running_session_is_forked_at_its_newest_finished_turn(
    running_system: System,
) -> None:
    chat, ends = await talk(running_system, CALLS)
    held = script({"content": [text("Slow.")], "hold": "fork-running"})
    async with chat.stream() as stream:
        await chat.send(message(held))
        await running_system.model.held("fork-running")
        fork = await chat.fork()
        at_end = await chat.fork(ends[0])
        found = await request_of(fork, PROBE)
        assert found.body == (await request_of(at_end, PROBE)).body
        assert len(found.messages) == 5
        await running_system.model.release("fork-running")
        await stream.until(is_idle)


async def refused(http: httpx2.AsyncClient, chat: Chat, event_id: str) -> str:
    answer = await http.post(f"/v1/sessions/{chat.id}/fork", json={"at_event_id": event_id})
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]["message"]


async def test_a_fork_inside_a_turn_is_refused_and_names_the_boundaries(
    running_system: System,
) -> None:
    chat, ends = await talk(running_system, PLAIN, CALLS, PLAIN)
    http, history = running_system.http(), await chat.history()
    kinds = types_of(history)
    last = max(i for i, kind in enumerate(kinds[: history.index(ends[1])]) if "agent." in kind)
    begins = [i for i, kind in enumerate(kinds) if kind == "user.message"]
    for event in history[begins[1] : last]:
        said = await refused(http, chat, event["id"])
        assert said.startswith("at_event_id: ")
        assert ends[0]["id"] in said
        assert history[last]["id"] in said
    for event in history[last : begins[2]]:
        await chat.fork(event)
    first = await refused(http, chat, history[begins[0]]["id"])
    assert next(e["id"] for e in history if e["type"] == "agent.message") in first


async def test_unknown_events_and_sessions_are_refused(running_system: System) -> None:
    chat, ends = await talk(running_system, PLAIN)
    other, _ = await talk(running_system, PLAIN)
    http = running_system.http()
    for id_ in (ids.new("event"), "what", "nul \x00"):
        assert "at_event_id" in await refused(http, chat, id_)
    assert "is no processed event" in await refused(http, other, ends[0]["id"])
    for id_ in (ids.new("session"), "sesn_what"):
        assert (await http.post(f"/v1/sessions/{id_}/fork", json={})).status_code == 404
    async with chat.stream():
        await chat.client.beta.sessions.delete(chat.id)
    assert (await http.post(f"/v1/sessions/{chat.id}/fork", json={})).status_code == 404


async def test_an_archived_session_can_be_forked(running_system: System) -> None:
    chat, _ = await talk(running_system, CALLS)
    await chat.client.beta.sessions.archive(chat.id)
    fork = await chat.fork()
    assert len((await request_of(fork, PROBE)).messages) == 5


async def test_what_happens_to_the_source_later_does_not_reach_a_fork(
    running_system: System,
) -> None:
    chat, ends = await talk(running_system, CALLS)
    before = await chat.fork()
    expected = (await request_of(await chat.fork(), PROBE)).body
    await request_of(chat, PLAIN)
    after = await chat.fork(ends[0])
    inner = await after.fork()
    await chat.client.beta.sessions.delete(chat.id)
    await erased(chat)
    for fork in (before, after, inner):
        assert (await request_of(fork, PROBE)).body == expected
    await after.client.beta.sessions.delete(after.id)
    await erased(after)
    assert (await request_of(await inner.fork(), PROBE)).body == (
        await request_of(inner, PROBE)
    ).body


async def test_a_call_that_may_have_run_stays_so_in_the_fork(running_system: System) -> None:
    chat = await Chat.open(running_system)
    running_system.effects.hold()
    async with chat.stream() as stream:
        await chat.send(message(script({"content": [use("note", text="late")]})))
        await running_system.effects.wait(1)
        await chat.send(INTERRUPT)
        await stream.until(is_idle)
    fork = await chat.fork()
    running_system.effects.release()
    thread = await thread_of(chat)

    async def is_late() -> bool:
        request = journal_pb2.ListLateOutcomesRequest(thread=thread)
        return bool((await running_system.journal.ListLateOutcomes(request)).late_outcomes)

    await eventually(is_late)
    asked = await request_of(fork, PROBE)
    assert MAY_HAVE_RUN_TEXT in json.dumps(asked.messages)
    assert "A note from the platform" not in json.dumps(asked.messages)
    told = await request_of(chat, PROBE)
    assert "A note from the platform" in json.dumps(told.messages)
    # Behind the note it is a part of the history.
    again = await chat.fork()
    assert (await request_of(again, PLAIN)).body == (await request_of(chat, PLAIN)).body


async def test_a_fork_runs_tools_and_is_verified_like_every_session(
    running_system: System,
) -> None:
    chat, _ = await talk(running_system, CALLS, CONTINUED)
    fork = await chat.fork()
    await turn(fork, CALLS)
    await check_everything(fork, await fork.history(), all_requests=False)


async def test_a_fork_owns_what_its_history_refers_to(running_system: System) -> None:
    chat, _ = await talk(running_system)
    long = "<long>" + "x" * 150_000
    async with chat.stream() as stream:
        await chat.send(message(script({"content": [use("decide", text="a")]})))
        asks = (await stream.until(is_idle))[-1]
        await chat.send(result(asks["stop_reason"]["event_ids"][0], long))
        await stream.until(is_idle)
    fork = await chat.fork()
    found = await request_of(fork, PROBE)
    assert found.body == (await request_of(chat, PROBE)).body
    assert long.encode() not in found.body
    await chat.client.beta.sessions.delete(chat.id)
    await erased(chat)
    artifacts = artifacts_pb2_grpc.ArtifactServiceStub(running_system.channel("files"))
    thread = await thread_of(fork)
    owner = {"workspace_id": thread.workspace_id, "session_id": fork.id}
    listed = await artifacts.ListArtifacts(artifacts_pb2.ListArtifactsRequest(**owner))
    (owned,) = listed.artifacts
    read = artifacts_pb2.ReadArtifactRequest(**owner, artifact_id=owned.artifact.id)
    assert (await artifacts.ReadArtifact(read)).body == long.encode()
    inner = await fork.fork()
    assert (await request_of(inner, PLAIN)).body == (await request_of(fork, PLAIN)).body
