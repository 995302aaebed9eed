"""What is stored of a request: everything to build it again, and none of its history."""

import hashlib
import hmac
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.types.v1 import runtime_pb2
from counterfoil.types.v1.reference_pb2 import Attempt, Head, ThreadRef

from foundation import ids
from foundation.storage import Record, SealRing
from services.context import catalog, materializer
from services.context.admission import Limits, limits_of

ThreadKey = tuple[str, str, str]
"""Workspace, session, thread."""

ADDRESS_BYTES = 16


class Row(Protocol):
    """A row, by its columns."""

    def __getitem__(self, column: str, /) -> Any: ...


class Recipe(msgspec.Struct, frozen=True, array_like=True):
    """One request: the transcript through `head_seq`, between the bytes of a part and a tail."""

    head_seq: int
    head_digest: bytes
    request_head: bytes
    pins: bytes
    stream: bool
    input_tokens_estimate: int
    input_tokens_limit: int
    request_digest: bytes
    request_bytes: int
    version: int = 1
    losses_version: int = 0
    """The thread's losses that it was made with; see `losses`."""
    transitions: int = 0
    transitions_digest: bytes = b""
    checkpoint_id: str = ""
    size_source: str = "estimate"
    """What the tokens were taken from; see `admission.Size`."""
    anchor_snapshot_id: str = ""
    anchor_tokens: int = 0
    recovery: str = ""
    """With an overflow: what was done about it, `images` or `compaction`."""
    overflowed_snapshot_id: str = ""
    """The request that the provider refused before this one."""
    reason: str = ""
    """Why history was changed for it: `pruned`, `compacted`, `images`; empty when it was not."""
    purpose: str = "working"
    """`working` or `summary`."""
    tail: bytes = b""
    """Address of the part behind the messages; empty for the usual tail."""
    plan_id: str = ""
    """With a summary: what is summarized."""


class Pins(msgspec.Struct, frozen=True):
    """What else was decided with; the same for most requests of a session, so stored as a part."""

    model: str
    window_tokens: int
    output_tokens_max: int
    growth_tokens: int
    catalog: str
    materializer: int
    profile: tuple[str, int, str]
    tools: list[tuple[str, int, int, str]]
    effort: int
    speed: int
    inference_geo: str
    automatic_prompt_caching: bool
    betas: list[str]


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands around the messages of a request; the same for most requests of a session."""

    runtime: runtime_pb2.SessionRuntime
    """What it was made of."""
    limits: Limits
    head: bytes
    betas: list[str]
    pins: bytes

    @property
    def parts(self) -> tuple[bytes, bytes]:
        """What is stored of it, each once for all threads of a workspace."""
        return self.head, self.pins

    @property
    def size(self) -> int:
        """Bytes in memory, roughly: the runtime holds about what the head does."""
        return 2 * len(self.head) + len(self.pins)


_RECIPE = msgspec.msgpack.Decoder(Recipe)
_PINS = msgspec.json.Decoder(Pins)


def thread_key(thread: ThreadRef) -> ThreadKey:
    """The key of a thread's rows."""
    return thread.workspace_id, thread.session_id, thread.thread_id


def snapshot_id(
    key: ThreadKey, turn_id: str, round: int, attempt: Attempt, plan_id: str = ""
) -> str:
    """The one snapshot of an attempt, or of the summary that it needs first."""
    plan = [plan_id] if plan_id else []
    return ids.derived("snapshot", *key, turn_id, round, attempt.epoch, attempt.number, *plan)


def _pins_of(runtime: runtime_pb2.SessionRuntime, limits: Limits) -> bytes:
    """The pinned facts of a request as a part; equal facts give equal bytes."""
    profile, options = runtime.profile, runtime.model_options
    return msgspec.json.encode(
        Pins(
            model=runtime.model,
            window_tokens=limits.window_tokens,
            output_tokens_max=limits.output_tokens_max,
            growth_tokens=limits.growth_tokens,
            catalog=catalog.VERSION,
            materializer=materializer.VERSION,
            profile=(profile.id, profile.version, profile.adapter),
            tools=[(t.name, t.owner, t.policy, t.version) for t in runtime.tools],
            effort=options.effort,
            speed=options.speed,
            inference_geo=options.inference_geo,
            automatic_prompt_caching=profile.automatic_prompt_caching,
            betas=materializer.request_betas(runtime),
        )
    )


def read_pins(part: bytes) -> Pins:
    """The facts in a part."""
    return _PINS.decode(part)


def part_identity(workspace_id: str, address: bytes) -> tuple[str, ...]:
    """What a sealed part is bound to."""
    return ("context.parts", "body_sealed", workspace_id, address.hex())


def frame_of(runtime: runtime_pb2.SessionRuntime) -> Frame:
    """What the requests of a runtime are made with."""
    kept = runtime_pb2.SessionRuntime()
    kept.CopyFrom(runtime)  # the given one is a part of a larger message
    limits = limits_of(catalog.lookup(runtime.model, runtime.profile.window_tokens))
    head = materializer.request_head(runtime, limits.output_tokens_max)
    betas = materializer.request_betas(runtime)
    return Frame(kept, limits, head, betas, _pins_of(runtime, limits))


def for_summary(made: Recipe, tail: bytes, plan_id: str) -> Recipe:
    """The recipe of a request for a summary; `tail` is the address of what stands behind its
    messages."""
    return msgspec.structs.replace(
        made, purpose="summary", tail=tail, stream=False, plan_id=plan_id
    )


def addresses_of(key: bytes, *parts: bytes) -> tuple[bytes, ...]:
    """Content addresses of parts in a workspace with this key."""
    return tuple(_address_of(key, part) for part in parts)


def _address_of(key: bytes, body: bytes) -> bytes:
    """Content address of a part in its workspace; worthless without the workspace's key."""
    return hmac.digest(key, body, hashlib.sha256)[:ADDRESS_BYTES]


def identity(
    key: ThreadKey, id: str, turn_id: str, round: int, attempt: Attempt
) -> tuple[str | int, ...]:
    """What a sealed recipe is bound to: its whole row."""
    where = ("context.snapshots", "recipe_sealed", *key, id)
    return (*where, turn_id, round, attempt.epoch, attempt.number)


def encode(recipe: Recipe) -> bytes:
    """The recipe as it is sealed."""
    return msgspec.msgpack.encode(recipe)


def decode(body: bytes) -> Recipe:
    """What `encode` gave, by this version or an older one. Raises msgspec.DecodeError."""
    return _RECIPE.decode(body)


def open_row(ring: SealRing, key: ThreadKey, row: Row) -> Recipe:
    """The recipe in a row of `snapshots`. Raises SealBroken for a row that was changed."""
    attempt = Attempt(epoch=row["attempt_epoch"], number=row["attempt_number"])
    bound = identity(key, row["id"], row["turn_id"], row["round"], attempt)
    return _RECIPE.decode(ring.open(row["recipe_sealed"], *bound))


def summary(ring: SealRing, key: ThreadKey, row: Record) -> pb.SnapshotSummary:
    """A row as the contract shows it."""
    recipe = open_row(ring, key, row)
    attempt = Attempt(epoch=row["attempt_epoch"], number=row["attempt_number"])
    return summary_of(recipe, row["id"], row["turn_id"], row["round"], attempt)


def summary_of(
    recipe: Recipe, id: str, turn_id: str, round: int, attempt: Attempt
) -> pb.SnapshotSummary:
    """A recipe as the contract shows it."""
    return pb.SnapshotSummary(
        id=id,
        turn_id=turn_id,
        round=round,
        attempt=attempt,
        transcript_head=Head(seq=recipe.head_seq, digest=recipe.head_digest),
        request_digest=recipe.request_digest,
        request_bytes=recipe.request_bytes,
        input_tokens_estimate=recipe.input_tokens_estimate,
        transition_head=(
            Head(seq=recipe.transitions, digest=recipe.transitions_digest)
            if recipe.transitions
            else None
        ),
        checkpoint_id=recipe.checkpoint_id,
    )
