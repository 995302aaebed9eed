"""Checkpoints: a summary that stands for a contiguous beginning of effective history. Pure.

Checkpoints of a thread form one chain. Each names how far it goes in the transcript, the digest of
the effective history that it covers, and the checkpoint before it, on whose summary it builds. What
is covered does not change any more (except by redaction, which revokes), so the digest holds for
ever. It never holds single replacements: those are transitions.
"""

from typing import Literal

import msgspec

from foundation import ids

SUMMARY_BYTES_MAX = 64 * 1024

SHRINK = 0.8
"""A checkpoint is recorded only if the request becomes this much smaller, at least."""

Cause = Literal["window", "overflow", "profile_switch", "redaction_repair"]


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """One recorded summary."""

    id: str
    through_seq: int
    """The last transcript entry that it covers."""
    through_digest: bytes
    """Chain digest of the transcript there."""
    effective_digest: bytes
    """Of the effective history that it covers, 32 bytes; rolls on from the checkpoint before."""
    transitions: int
    """How many transitions there were when it was made; tells the reader of a log, decides
    nothing."""
    anchor_seq: int
    """The input of the turn that it cuts through, which is still shown behind the summary; 0 where
    it ends with a turn."""
    block: bytes
    """The content block that stands for what is covered, exact JSON."""
    sections: bytes
    """What the next summary builds on; see `summary`."""
    format: Literal["extractive", "model"]
    operation_id: str
    """With a model's summary: the provider call that wrote it."""
    previous_id: str
    cause: str
    model: str
    """Model and profile that it was made for: another one has it made again."""
    profile: str
    tokens_before: int
    tokens_after: int
    policy: int
    """Version of the rules that made it."""


class RefusedCheckpoint(Exception):
    """A checkpoint that may not be recorded; `reason` is a word of the protocol."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def identified(key: tuple[str, str, str], made: Checkpoint) -> Checkpoint:
    """The checkpoint with its id, which is derived from what it covers and says."""
    id = ids.derived(
        "checkpoint",
        *key,
        made.through_seq,
        made.through_digest,
        made.effective_digest,
        made.previous_id,
        made.cause,
        made.block,
    )
    return msgspec.structs.replace(made, id=id)


def check(made: Checkpoint, current: Checkpoint | None, last_id: str) -> None:
    """Raise RefusedCheckpoint unless the checkpoint may follow the one in force.

    `last_id` is the newest checkpoint of the chain, revoked or not.
    """
    if made.previous_id != last_id:
        raise RefusedCheckpoint("STALE_HEAD", "another checkpoint was recorded meanwhile")
    covered = current.through_seq if current else 0
    is_equal = made.through_seq == covered and made.cause == "profile_switch"
    if made.through_seq <= covered and not is_equal and made.cause != "redaction_repair":
        raise RefusedCheckpoint("NO_PROGRESS", f"entry {covered} is covered already")
    if len(made.block) > SUMMARY_BYTES_MAX:
        raise RefusedCheckpoint("LIMIT", f"a summary has at most {SUMMARY_BYTES_MAX} bytes")
    shrinks = made.tokens_after <= SHRINK * made.tokens_before
    if not shrinks and made.cause in ("window", "overflow"):
        raise RefusedCheckpoint("NO_PROGRESS", "the request would hardly become smaller")
