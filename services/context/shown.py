"""Snapshots as their readers see them. Pure."""

from datetime import UTC

from counterfoil.context.v1 import context_pb2
from counterfoil.context.v1 import snapshots_pb2 as pb
from counterfoil.journal.v1 import journal_pb2
from counterfoil.types.v1 import model_pb2, runtime_pb2
from counterfoil.types.v1.reference_pb2 import Head

from foundation.storage import Record
from services.context import diff
from services.context.recipe import Pins, Recipe, ThreadKey

_MODEL_CALL_OUTCOMES = {
    journal_pb2.MODEL_CALL_OUTCOME_ANSWERED: pb.SNAPSHOT_OUTCOME_ANSWERED,
    journal_pb2.MODEL_CALL_OUTCOME_FAILED: pb.SNAPSHOT_OUTCOME_FAILED,
}
_STATES = {
    journal_pb2.OPERATION_STATE_STARTED: pb.SNAPSHOT_OUTCOME_SENT,
    journal_pb2.OPERATION_STATE_AMBIGUOUS: pb.SNAPSHOT_OUTCOME_LOST,
}


def outcome(operation: journal_pb2.Operation | None) -> pb.SnapshotOutcome.ValueType:
    """What became of a request, from its provider call; None for a call that was never started."""
    if operation is None:
        return pb.SNAPSHOT_OUTCOME_NOT_SENT
    if operation.state == journal_pb2.OPERATION_STATE_COMPLETED:
        return _MODEL_CALL_OUTCOMES[operation.model_call_outcome]
    return _STATES.get(operation.state, pb.SNAPSHOT_OUTCOME_NOT_SENT)


def snapshot(
    key: ThreadKey,
    row: Record,
    summary: context_pb2.SnapshotSummary,
    made: Recipe,
    pins: Pins,
    operation: journal_pb2.Operation | None,
    *,
    whole: bool,
) -> pb.ContextSnapshot:
    """A snapshot; `whole` with its recipe."""
    found = pb.ContextSnapshot(
        id=summary.id,
        session_thread_id=key[2],
        turn_id=summary.turn_id,
        round=summary.round,
        attempt=summary.attempt,
        parent_id=summary.parent_id or None,
        outcome=outcome(operation),
        model=pins.model,
        transcript_head=_head(summary.transcript_head),
        checkpoint_id=summary.checkpoint_id or None,
        input_tokens=summary.input_tokens_estimate,
        input_tokens_source=pb.INPUT_TOKENS_SOURCE_ESTIMATE,
        request_bytes=summary.request_bytes,
        request_digest=summary.request_digest.hex(),
    )
    if row["created_at"] is not None:
        found.created_at.FromDatetime(row["created_at"].astimezone(UTC))
    if summary.HasField("transition_head"):
        found.transition_head = _head(summary.transition_head)
    if whole:
        found.recipe.CopyFrom(_recipe(made, pins))
    return found


def difference(
    id: str,
    other_id: str,
    found: diff.Difference,
    cause: diff.Change,
    one: diff.Parts,
    other: diff.Parts,
) -> pb.ContextSnapshotDiff:
    """A difference."""
    told = pb.ContextSnapshotDiff(
        snapshot_id=id,
        other_snapshot_id=other_id,
        cause=cause,
        shared_blocks=found.shared_blocks,
        blocks=len(one.blocks),
        other_blocks=len(other.blocks),
        shared_bytes=found.shared_bytes,
    )
    if (place := found.place) is not None:
        told.first_difference.CopyFrom(
            pb.RequestPlace(part=place.part, index=place.index, message=place.message)
        )
    return told


def _recipe(made: Recipe, pins: Pins) -> pb.SnapshotRecipe:
    id, version, adapter = pins.profile
    return pb.SnapshotRecipe(
        entries=pb.SnapshotEntries(first=1, last=made.head_seq),
        profile=pb.SnapshotProfile(id=id, version=version, adapter=adapter),
        parameters=pb.SnapshotParameters(
            output_tokens_max=pins.output_tokens_max,
            effort=model_pb2.ModelEffort.ValueType(pins.effort),
            speed=model_pb2.ModelSpeed.ValueType(pins.speed),
            inference_geo=pins.inference_geo or None,
            automatic_prompt_caching=pins.automatic_prompt_caching,
            stream=made.stream,
        ),
        tools=[
            pb.SnapshotTool(
                name=name,
                owner=runtime_pb2.ToolOwner.ValueType(owner),
                policy=runtime_pb2.ToolPolicy.ValueType(policy),
                version=version or None,
            )
            for name, owner, policy, version in pins.tools
        ],
        betas=pins.betas,
        limits=pb.SnapshotLimits(
            window_tokens=pins.window_tokens,
            output_tokens_reserved=pins.output_tokens_max,
            growth_tokens_reserved=pins.growth_tokens,
            input_tokens_max=made.input_tokens_limit,
        ),
        catalog=pins.catalog,
        materializer=pins.materializer,
    )


def _head(head: Head) -> str:
    return f"{head.seq}:{head.digest.hex()}"
