"""A stored answer as the public sees it: events, calls, and what still has to happen. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import (
    agent_events_pb2,
    content_pb2,
    events_pb2,
    session_events_pb2,
    turn_pb2,
)
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import mapping_pb2, reference_pb2, runtime_pb2, usage_pb2

from foundation import operations
from services.runner import answer as answers
from services.runner import names
from services.runner.stops import Then


@dataclass(frozen=True)
class Judged:
    """One tool call of an answer and what became of it."""

    call: turn_pb2.RoundCall
    input: bytes
    tool_version: str
    refusal: str
    """What the model is told when the call cannot be made; empty for a call that can."""

    @property
    def executable(self) -> bool:
        """The platform runs it without asking."""
        return (
            not self.refusal
            and self.call.owner == runtime_pb2.TOOL_OWNER_PLATFORM_MANAGED
            and self.call.policy == runtime_pb2.TOOL_POLICY_ALWAYS_ALLOW
        )

    @property
    def waits_for_client(self) -> bool:
        """A client must answer or decide."""
        return not self.refusal and not self.executable


@dataclass(frozen=True)
class Round:
    """One stored answer, read."""

    number: int
    attempt: reference_pb2.Attempt
    entry_id: str
    seq: int
    digest: bytes
    stop_reason: str
    refusal: session_events_pb2.StopDetails | None
    segments: Sequence[answers.Segment]
    calls: Sequence[Judged]
    operation_id: str
    usage: usage_pb2.ModelUsage


def read_round(
    entry: transcript_pb2.Entry, turn_id: str, runtime: runtime_pb2.SessionRuntime
) -> Round:
    """The round that an answer entry holds: the same for every owner that reads it."""
    stop_reason = answers.stop_reason_of(entry.content.envelope)
    calls = answers.calls_of(entry.content.blocks)
    verdicts = answers.judge(calls, stop_reason, runtime.tools)
    judged = [
        _judged(call, verdict, turn_id, entry)
        for call, verdict in zip(calls, verdicts, strict=True)
    ]
    return Round(
        number=entry.round,
        attempt=entry.attempt,
        entry_id=entry.id,
        seq=entry.seq,
        digest=entry.digest,
        stop_reason=stop_reason,
        refusal=_refusal(entry, stop_reason),
        segments=answers.segments_of(entry.content.blocks),
        calls=judged,
        operation_id=entry.content.operation_id,
        usage=answers.usage_of(entry.content.envelope),
    )


def _refusal(
    entry: transcript_pb2.Entry, stop_reason: str
) -> session_events_pb2.StopDetails | None:
    if stop_reason != answers.REFUSED:
        return None
    return answers.stop_details_of(entry.content.envelope)


def _judged(
    call: answers.ToolCall,
    verdict: answers.Verdict,
    turn_id: str,
    entry: transcript_pb2.Entry,
) -> Judged:
    binding = verdict.binding
    index = call.block_index
    round_call = turn_pb2.RoundCall(
        use_event_id=operations.block_event(turn_id, entry.round, entry.attempt, index),
        operation_id=names.tool_operation(turn_id, entry.round, entry.attempt, index),
        block_index=index,
        name=call.name,
    )
    if binding is not None and not verdict.refusal:
        round_call.owner = binding.owner
        round_call.policy = binding.policy
    version = binding.version if binding is not None else ""
    return Judged(round_call, call.input, version, verdict.refusal)


def mappings(
    calls: Sequence[answers.ToolCall],
    turn_id: str,
    round_: int,
    attempt: reference_pb2.Attempt,
) -> list[mapping_pb2.ToolCallMapping]:
    """The names of an answer's calls, for the transcript's id map."""
    return [
        mapping_pb2.ToolCallMapping(
            block_index=call.block_index,
            provider_tool_use_id=call.provider_id,
            operation_id=names.tool_operation(turn_id, round_, attempt, call.block_index),
            event_id=operations.block_event(turn_id, round_, attempt, call.block_index),
        )
        for call in calls
    ]


def new_operations(round_: Round) -> list[journal_pb2.NewOperation]:
    """Every call of a round as the journal prepares it."""
    return [
        journal_pb2.NewOperation(
            id=judged.call.operation_id,
            block_index=judged.call.block_index,
            owner=judged.call.owner,
            tool_name=judged.call.name,
            tool_version=judged.tool_version,
            input=judged.input,
        )
        for judged in round_.calls
    ]


def events(round_: Round, turn_id: str) -> list[events_pb2.Event]:
    """The public events of an answer, in block order."""
    found: list[tuple[int, events_pb2.Event]] = []
    for segment in round_.segments:
        index = segment.first_block_index
        event = events_pb2.Event(
            id=operations.block_event(turn_id, round_.number, round_.attempt, index)
        )
        if segment.kind == "thinking":
            event.agent_thinking.SetInParent()
        else:
            event.agent_message.content.extend(
                content_pb2.ContentBlock(text=content_pb2.TextBlock(text=text))
                for text in segment.texts
            )
        found.append((index, event))
    found.extend((judged.call.block_index, _use_event(judged)) for judged in round_.calls)
    return [event for _, event in sorted(found, key=lambda pair: pair[0])]


def _use_event(judged: Judged) -> events_pb2.Event:
    call = judged.call
    if call.owner == runtime_pb2.TOOL_OWNER_CLIENT_CUSTOM:
        custom = agent_events_pb2.AgentCustomToolUse(name=call.name, input=judged.input)
        return events_pb2.Event(id=call.use_event_id, agent_custom_tool_use=custom)
    use = agent_events_pb2.AgentToolUse(name=call.name, input=judged.input)
    if judged.refusal:
        # Refused before any policy applied: denied, and no evaluation is claimed.
        use.evaluated_permission = agent_events_pb2.EVALUATED_PERMISSION_DENY
    elif call.policy == runtime_pb2.TOOL_POLICY_ALWAYS_ASK:
        use.evaluated_permission = agent_events_pb2.EVALUATED_PERMISSION_ASK
        use.evaluation.always_ask.SetInParent()
    else:
        use.evaluated_permission = agent_events_pb2.EVALUATED_PERMISSION_ALLOW
        use.evaluation.always_allow.SetInParent()
    return events_pb2.Event(id=call.use_event_id, agent_tool_use=use)


def commit_of(round_: Round, then: Then) -> "turn_pb2.CommitKind.ValueType":
    """The commit that goes with publishing the round: none while something is left to do here."""
    if then in (Then.END, Then.END_REFUSED):
        return turn_pb2.COMMIT_KIND_DONE
    if then is Then.RESULTS and all(judged.waits_for_client for judged in round_.calls):
        return turn_pb2.COMMIT_KIND_PARKED
    return turn_pb2.COMMIT_KIND_UNSPECIFIED


def stop_reason_of(round_: Round) -> "session_events_pb2.StopReasonType.ValueType":
    """The public stop reason of a turn that ends with this round."""
    if round_.refusal is not None:
        return session_events_pb2.STOP_REASON_TYPE_REFUSAL
    return session_events_pb2.STOP_REASON_TYPE_END_TURN
