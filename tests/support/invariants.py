"""What must hold of every session, however it came to its end."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from counterfoil.context.v1 import context_pb2
from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import turn_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import reference_pb2

from cli.crosscheck import contradictions
from foundation.errors import Failure
from tests.support.chat import Chat, Event, is_over, types_of
from tests.support.model import Asked

_USES = ("agent.custom_tool_use", "agent.tool_use")
_COUNTED = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
_RESULTS = ("user.custom_tool_result", "agent.tool_result")


def check_history(events: Sequence[Event], summaries: Sequence[int] = ()) -> None:
    """A finished session's events: each once, every call answered, every span closed. `summaries`
    as for `check_usage`."""
    types = types_of(events)
    twice = [id for id, n in Counter(event["id"] for event in events).items() if n > 1]
    assert not twice, f"events listed twice: {twice}"
    assert not [event for event in events if event.get("processed_at") is None], types
    times = [datetime.fromisoformat(event["processed_at"]) for event in events]
    assert times == sorted(times), "processed_at goes back"
    assert "toolu_" not in json.dumps(events)
    _check_calls(events)
    _check_spans(events)
    check_usage(events, summaries)
    _check_statuses(events, types)


def _check_calls(events: Sequence[Event]) -> None:
    uses = [event["id"] for event in events if event["type"] in _USES]
    results = [
        event.get("custom_tool_use_id") or event.get("tool_use_id")
        for event in events
        if event["type"] in _RESULTS
    ]
    assert sorted(map(str, results)) == sorted(uses), "calls and results do not pair up"


def _check_spans(events: Sequence[Event]) -> None:
    starts = [event["id"] for event in events if event["type"] == "span.model_request_start"]
    ends = [
        event["model_request_start_id"]
        for event in events
        if event["type"] == "span.model_request_end"
    ]
    assert sorted(starts) == sorted(ends), "spans do not pair up"


def check_usage(events: Sequence[Event], summaries: Sequence[int] = ()) -> None:
    """Whenever the session tells its usage, it is the sum of the spans that ended before, and of
    the summaries that a model wrote until then. They have no span; `summaries` are the input tokens
    of their requests."""
    spans, aside = Counter[str](), Counter[str]()
    for event in events:
        if event["type"] == "span.model_request_end":
            spent = event["model_usage"]
            spans.update({name: n for name, n in spent.items() if name != "speed"})
        if event["type"] == "session.usage":
            told = _told(event["usage"])
            assert all(told[name] >= spans[name] + aside[name] for name in _COUNTED), "less usage"
            aside = Counter({name: told[name] - spans[name] for name in _COUNTED})
    asked = sum(aside[name] for name in _COUNTED if name != "output_tokens")
    assert asked == sum(summaries), "usage is not what its spans and summaries say"
    assert bool(aside["output_tokens"]) == bool(summaries), "output that nobody wrote"


def _told(usage: dict[str, Any]) -> dict[str, int]:
    """The counters of a session's usage, named as those of its spans."""
    plain = {name: usage[name] for name in _COUNTED if name in usage}
    return {**plain, "cache_creation_input_tokens": sum(usage["cache_creation"].values())}


def _check_statuses(events: Sequence[Event], types: Sequence[str]) -> None:
    statuses = [event for event in events if event["type"].startswith("session.status_")]
    running = False
    for event in statuses:
        if event["type"] == "session.status_running":
            assert not running, f"running twice: {types}"
            running = True
        elif event["type"] in ("session.status_idle", "session.status_rescheduled"):
            running = False
    assert statuses, types
    assert is_over(statuses[-1]), types
    for before, after in pairwise(types):
        if after == "session.status_idle":
            assert before == "session.usage", types


async def check_chains(chat: Chat) -> reference_pb2.ThreadRef:
    """Both hash chains hold and vouch for each other; the session's thread."""
    request = turn_pb2.VerifyLogRequest(session_id=chat.id)
    log = await chat.system.turns.VerifyLog(request)
    transcript = await chat.system.transcript.VerifyTranscript(
        transcript_pb2.VerifyTranscriptRequest(thread=log.thread)
    )
    wrong = [finding.message for finding in (*log.findings, *transcript.findings)]
    assert not wrong, wrong
    assert log.entries > 0
    assert transcript.entries > 0
    assert not contradictions(log, transcript)
    return log.thread


async def check_requests(
    chat: Chat, thread: reference_pb2.ThreadRef, *, all_of_them: bool = True
) -> list[Asked]:
    """Every request was well formed and can be rebuilt byte for byte; the requests.

    Without `all_of_them`, other sessions asked the model too, and theirs are left out.
    """
    asked = await chat.system.model.asked()
    snapshots = await chat.system.context.ListSnapshots(
        context_pb2.ListSnapshotsRequest(thread=thread)
    )
    rebuilt: set[bytes] = set()
    for snapshot in snapshots.snapshots:
        request = context_pb2.RebuildRequest(thread=thread, snapshot_id=snapshot.id)
        rebuilt.add((await chat.system.context.Rebuild(request)).body)
    if not all_of_them:
        asked = [one for one in asked if one.body in rebuilt]
        assert asked
    for one in asked:
        status = one.record["status"]
        scripted = rf"\"status\": {status}".encode() in one.body
        assert status in (0, 200) or scripted, one.record
        assert one.body in rebuilt, "a request was sent that nothing rebuilds"
        check_results(one)
    return asked


def check_results(asked: Asked) -> None:
    """Each tool use of a request has its result at the start of the next message."""
    messages = asked.messages
    for index, one in enumerate(messages):
        if one["role"] != "assistant":
            continue
        uses = [block["id"] for block in one["content"] if block["type"] == "tool_use"]
        following = messages[index + 1]["content"] if index + 1 < len(messages) else []
        results = [block for block in following if block["type"] == "tool_result"]
        assert [block["tool_use_id"] for block in results] == uses


async def check_operations(chat: Chat, thread: reference_pb2.ThreadRef) -> None:
    """Nothing executed twice, and no tool call is left without an end."""
    counts = chat.system.effects.by_operation()
    assert not [id for id, times in counts.items() if times > 1], counts
    found = await chat.system.journal.InspectOperations(
        journal_pb2.InspectOperationsRequest(thread=thread, reader="test", purpose="invariants")
    )
    for operation in found.operations:
        if operation.kind != journal_pb2.OPERATION_KIND_TOOL_CALL:
            continue
        assert operation.state in _ENDED, operation
        if operation.id in counts:
            assert operation.state != journal_pb2.OPERATION_STATE_ABANDONED, operation


_ENDED = (
    journal_pb2.OPERATION_STATE_COMPLETED,
    journal_pb2.OPERATION_STATE_AMBIGUOUS,
    journal_pb2.OPERATION_STATE_ABANDONED,
)


async def check_names(chat: Chat, thread: reference_pb2.ThreadRef, events: Sequence[Event]) -> None:
    """Each call's three names lead to each other."""
    for use in [event for event in events if event["type"] in _USES]:
        transcript = chat.system.transcript
        by_event = await transcript.ResolveMapping(
            transcript_pb2.ResolveMappingRequest(thread=thread, event_id=use["id"])
        )
        names = by_event.mapping
        by_operation = await transcript.ResolveMapping(
            transcript_pb2.ResolveMappingRequest(thread=thread, operation_id=names.operation_id)
        )
        assert by_operation == by_event
        assert names.provider_tool_use_id


async def check_everything(
    chat: Chat, events: Sequence[Event], *, all_requests: bool = True
) -> list[Asked]:
    """All of it; what the provider was asked. Reads are repeated while the system is away. Without
    `all_requests`, other sessions asked the model too."""
    check_history(events)
    async with asyncio.timeout(60):
        while True:
            try:
                return await _check_stored(chat, events, all_requests=all_requests)
            except Failure as failure:
                if failure.reason != reasons.ERROR_REASON_UNAVAILABLE:
                    raise
                await asyncio.sleep(0.05)
                await chat.system.up.wait()


async def _check_stored(chat: Chat, events: Sequence[Event], *, all_requests: bool) -> list[Asked]:
    await check_names(chat, await check_chains(chat), events)
    thread = await check_chains(chat)
    await check_operations(chat, thread)
    return await check_requests(chat, thread, all_of_them=all_requests)
