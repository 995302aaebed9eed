"""Snapshots as their readers see them. Pure."""

from datetime import UTC

from counterfoil.context.v1 import snapshots_pb2 as pb
from counterfoil.journal.v1 import journal_pb2
from counterfoil.types.v1 import model_pb2, runtime_pb2
from counterfoil.types.v1.reference_pb2 import Attempt

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

_SOURCES = {
    "estimate": pb.INPUT_TOKENS_SOURCE_ESTIMATE,
    "anchor": pb.INPUT_TOKENS_SOURCE_USAGE_ANCHOR,
    "count": pb.INPUT_TOKENS_SOURCE_PROVIDER_COUNT,
}
_PURPOSES = {"working": pb.SNAPSHOT_PURPOSE_ROUND, "summary": pb.SNAPSHOT_PURPOSE_SUMMARY}
_HISTORY_CHANGES = {
    "": pb.HISTORY_CHANGE_UNSPECIFIED,
    "pruned": pb.HISTORY_CHANGE_PRUNED,
    "compacted": pb.HISTORY_CHANGE_COMPACTED,
    "images": pb.HISTORY_CHANGE_IMAGES_OMITTED,
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
    made: Recipe,
    model: str,
    operation: journal_pb2.Operation | None,
) -> pb.ContextSnapshot:
    """A snapshot without its recipe."""
    found = pb.ContextSnapshot(
        id=row["id"],
        session_thread_id=key[2],
        turn_id=row["turn_id"],
        round=row["round"],
        attempt=Attempt(epoch=row["attempt_epoch"], number=row["attempt_number"]),
        parent_id=row["parent_id"],
        outcome=outcome(operation),
        model=model,
        transcript_head=_head(made.head_seq, made.head_digest),
        checkpoint_id=made.checkpoint_id or None,
        input_tokens=made.input_tokens_estimate,
        input_tokens_source=_SOURCES[made.size_source],
        request_bytes=made.request_bytes,
        request_digest=made.request_digest.hex(),
        purpose=_PURPOSES[made.purpose],
        history_change=_HISTORY_CHANGES[made.reason],
        overflowed_snapshot_id=made.overflowed_snapshot_id or None,
    )
    if row["created_at"] is not None:
        found.created_at.FromDatetime(row["created_at"].astimezone(UTC))
    if made.transitions:
        found.transition_head = _head(made.transitions, made.transitions_digest)
    return found


def recipe(made: Recipe, pins: Pins, covered_through: int) -> pb.SnapshotRecipe:
    """A recipe whose checkpoint covers the entries through one; 0 for none."""
    id, version, adapter = pins.profile
    anchor = None
    if made.anchor_snapshot_id:
        anchor = pb.SnapshotAnchor(snapshot_id=made.anchor_snapshot_id, tokens=made.anchor_tokens)
    return pb.SnapshotRecipe(
        entries=pb.SnapshotEntries(first=covered_through + 1, last=made.head_seq),
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
            input_tokens_limit=made.input_tokens_limit,
        ),
        catalog=pins.catalog,
        materializer=pins.materializer,
        anchor=anchor,
    )


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


def _head(seq: int, digest: bytes) -> str:
    return f"{seq}:{digest.hex()}"
