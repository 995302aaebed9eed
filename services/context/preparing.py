"""Prepares one attempt's request: as history is while that fits, and else after what makes it fit
was recorded."""

import hashlib
from dataclasses import dataclass

from counterfoil.context.v1 import context_pb2 as pb
from counterfoil.journal.v1 import journal_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1.reference_pb2 import Head

from foundation.errors import Failure, invalid, wrong_state
from services.context import admission, recipe
from services.context.admission import Anchor, Size
from services.context.breaks import Breaks
from services.context.cache import Loan, Warm
from services.context.compaction import Case, aggressive_limit, is_foreign
from services.context.history import History
from services.context.losses import Losses
from services.context.materializer import IMAGE_BYTES_MAX, count_body, request_tail, summary_tail
from services.context.recipe import Frame, Recipe, ThreadKey
from services.context.records import Records
from services.context.redacting import Redactor
from services.context.shrinking import (
    IMAGES_FULL,
    Recorded,
    Shrinker,
    Stale,
    SummaryWanted,
)
from services.context.snapshots import Snapshots, StaleLosses
from services.context.summary import instruction

_TRIES = 4
_STEPS_MAX = 3
_COUNT_WORTH = 3
"""An estimate that many times too large is no question for the provider."""


@dataclass
class _Work:
    """One call, as far as it has come."""

    request: pb.PrepareRequestRequest
    key: ThreadKey
    loan: Loan
    reason: str = ""
    recovery: str = ""

    @property
    def turn(self) -> tuple[str, int]:
        return self.request.turn_id, self.request.round


class Preparer:
    """Prepares requests of all threads."""

    def __init__(
        self,
        history: History,
        records: Records,
        snapshots: Snapshots,
        shrinker: Shrinker,
        redactor: Redactor,
        breaks: Breaks,
    ) -> None:
        self._history = history
        self._records = records
        self._snapshots = snapshots
        self._shrinker = shrinker
        self._redactor = redactor
        self._breaks = breaks

    async def prepare(
        self, request: pb.PrepareRequestRequest, key: ThreadKey, loan: Loan
    ) -> pb.PrepareRequestResponse:
        """The request, or what is needed or missing for it."""
        for _ in range(_TRIES):
            try:
                return await self._prepare(_Work(request, key, loan))
            except (Stale, StaleLosses):
                # Another process recorded something: what was decided here was about old history.
                loan.warm = loan.back = None
                await self._snapshots.admit(key, request.fence.epoch)
        raise Failure(reasons.ERROR_REASON_UNAVAILABLE, "the thread's history keeps changing")

    async def _prepare(self, work: _Work) -> pb.PrepareRequestResponse:
        warm = await self._current(work)
        if warm.is_empty:
            raise wrong_state("there is no message that a request could hold")
        recovered = await self._recover(work, warm)
        if recovered is None:
            size = _estimated(warm, warm.frame(work.request.runtime))
            return self._refused(work, warm, size)
        warm = recovered
        for _ in range(_STEPS_MAX):
            size = await self._size(work, warm)
            if isinstance(size, pb.CountNeeded):
                return pb.PrepareRequestResponse(count_needed=size)
            frame = warm.frame(work.request.runtime)
            if admission.has_room(size, warm.size, frame.limits):
                return await self._made(work, warm, size)
            step = await self._shrink(work, warm, size)
            if isinstance(step, SummaryWanted):
                return await self._summary_needed(work, warm, step)
            if step is None:
                break
            warm = await self._changed(work, step)
        size = await self._size(work, warm, may_ask=False)
        assert isinstance(size, Size)
        if admission.fits(size, warm.size, warm.frame(work.request.runtime).limits):
            return await self._made(work, warm, size)
        return self._refused(work, warm, size)

    async def _current(self, work: _Work) -> Warm:
        """History as it is, with the summary of what a redaction uncovered, one that was made for
        this model and profile, and with room for further images."""
        request, loan = work.request, work.loan
        known = {
            one.operation_id: journal_pb2.Projection(body=one.projection)
            for one in request.known_results
        }
        thread, head, warm = request.fence.thread, request.transcript_head, loan.warm
        losses = await self._records.newest(work.key) if warm is None else warm.losses
        warm = await self._history.current(thread, head, warm, losses, known)
        loan.back = warm
        if warm.losses.revoked_through:
            step = await self._shrinker.repair(await self._case(work, warm))
            warm = warm if step is None else await self._changed(work, step)
        if warm.losses.checkpoint is not None:
            frame = warm.frame(request.runtime)
            if is_foreign(warm.losses, frame.runtime):
                step = await self._shrinker.renew(await self._case(work, warm))
                warm = warm if step is None else await self._changed(work, step)
        if warm.image_bytes > IMAGES_FULL * IMAGE_BYTES_MAX:
            step = await self._shrinker.spare_images(await self._case(work, warm))
            warm = warm if step is None else await self._changed(work, step)
        return warm

    async def _changed(self, work: _Work, step: Recorded) -> Warm:
        """History after a step."""
        request = work.request
        work.reason = step.reason
        thread, head = request.fence.thread, request.transcript_head
        work.loan.back = await self._history.current(thread, head, None, step.losses)
        return work.loan.back

    async def _size(
        self, work: _Work, warm: Warm, *, may_ask: bool = True
    ) -> Size | pb.CountNeeded:
        frame = warm.frame(work.request.runtime)
        anchor = warm.anchor
        estimate = _estimated(warm, frame)
        if anchor is not None and not await self._holds(work, warm, frame, estimate):
            anchor = None
        size = _estimated(warm, frame, anchor)
        room = admission.has_room(size, warm.size, frame.limits)
        if room or not frame.runtime.profile.token_counting:
            return size
        if work.request.HasField("count"):
            return self._counted(work, warm, frame, size)
        worth = size.tokens <= _COUNT_WORTH * frame.limits.input_tokens_limit
        if not may_ask or not worth or work.reason:
            return size
        body = count_body(frame.runtime, warm.messages().joined)
        digest = hashlib.sha256(body).digest()
        return pb.CountNeeded(body=body, body_digest=digest, betas=frame.betas)

    def _counted(self, work: _Work, warm: Warm, frame: Frame, size: Size) -> Size:
        """What the provider counted, if it was this."""
        count = work.request.count
        if not count.input_tokens or work.reason:
            return size
        body = count_body(frame.runtime, warm.messages().joined)
        if hashlib.sha256(body).digest() != count.body_digest:
            return size
        return admission.counted(count.input_tokens)

    async def _holds(self, work: _Work, warm: Warm, frame: Frame, estimate: Size) -> bool:
        """Whether the newest measured request is what this one begins with."""
        anchor = warm.anchor
        assert anchor is not None
        if anchor.snapshot_id == warm.trusted_id:
            return True
        if estimate.tokens * 2 <= frame.limits.input_tokens_limit:
            return False  # it fits anyway, so nobody needs to know
        found = await self._snapshots.find(work.key, anchor.snapshot_id)
        if found is None or found.losses_version != warm.losses.version:
            return False
        addresses = await self._snapshots.addresses(work.key, frame)
        if found.request_head != addresses[0]:
            return False
        warm.trusted_id = anchor.snapshot_id
        return True

    async def _shrink(self, work: _Work, warm: Warm, size: Size) -> Recorded | SummaryWanted | None:
        case = await self._case(work, warm, size)
        return await self._shrinker.prune(case) or await self._shrinker.compact(case)

    async def _case(self, work: _Work, warm: Warm, size: Size | None = None) -> Case:
        request, frame = work.request, warm.frame(work.request.runtime)
        limit = frame.limits.input_tokens_limit
        estimated = _estimated(warm, frame).tokens
        if size is not None and size.tokens > estimated:
            # Plans are made of estimates: what is denser than they say leaves less room.
            limit = limit * estimated // size.tokens
        fits = size is not None and size.tokens <= frame.limits.input_tokens_max
        thread, head = request.fence.thread, request.transcript_head
        return Case(
            key=work.key,
            epoch=request.fence.epoch,
            turn=work.turn,
            frame=frame,
            losses=warm.losses,
            items=await self._history.items(thread, head, warm.losses),
            limit=limit,
            overflowed=False,
            asks_model=fits,
            given=request.summary if request.HasField("summary") else None,
        )

    async def _recover(self, work: _Work, warm: Warm) -> Warm | None:
        """History after what is done about a request that the provider refused as too large; None
        when everything was done already."""
        id = work.request.overflowed_snapshot_id
        if not id:
            return warm
        refused = await self._snapshots.find(work.key, id)
        if refused is None:
            raise invalid("overflowed_snapshot_id", f"the thread has no snapshot {id}")
        done = _done_since(refused, warm.losses)
        if done:
            work.recovery, work.reason = done, "compacted" if done == "compaction" else done
            return warm
        if refused.recovery == "compaction":
            work.recovery = refused.recovery
            return None
        case = await self._case(work, warm)
        case = case.refused(aggressive_limit(case.frame.limits, refused.input_tokens_estimate))
        step = None
        if not refused.recovery:
            step = await self._shrinker.omit_images(case)
            work.recovery = "images"
        if step is None:
            step = await self._shrinker.compact(case)
            work.recovery = "compaction"
        if not isinstance(step, Recorded):
            return None
        return await self._changed(work, step)

    async def _made(self, work: _Work, warm: Warm, size: Size) -> pb.PrepareRequestResponse:
        request, key = work.request, work.key
        frame = warm.frame(request.runtime)
        body, digest = warm.request(frame.head, request_tail(stream=request.stream))
        addresses = warm.stored or await self._snapshots.addresses(key, frame)
        made = self._recipe(work, warm, size, addresses, digest, len(body))
        id = recipe.snapshot_id(key, request.turn_id, request.round, request.attempt)
        if await self._snapshots.put(request, key, id, made, frame.parts, warm):
            if not warm.snapshot_id:  # else it was written behind the last one
                await self._breaks.watch(request.fence.thread, id, made, frame, body)
            warm.snapshot_id = id
        else:
            made = await self._snapshots.of_attempt(key, id, request.transcript_head)
            if made.request_digest != digest:
                # Made by an older version of ours, or of other losses: the first one counts.
                if await self._redactor.since(key, made.losses_version, made.head_seq):
                    message = "the attempt's request held something that was redacted since"
                    raise Failure(reasons.ERROR_REASON_UNAVAILABLE, message)
                body = await self.rebuilt(request.fence.thread, key, id, made)
        response = pb.PrepareRequestResponse()
        _fill(response.prepared, request, id, made, body, frame, warm.losses)
        return response

    async def rebuilt(
        self, thread: recipe.ThreadRef, key: ThreadKey, id: str, made: Recipe
    ) -> bytes:
        """The bytes of a stored recipe, from nothing but what is recorded. Raises CORRUPT."""
        head = Head(seq=made.head_seq, digest=made.head_digest)
        losses = await self._records.at(key, made.losses_version)
        past = await self._history.past(thread, head, losses)
        return await self._snapshots.built(key, id, made, past)

    def _recipe(
        self,
        work: _Work,
        warm: Warm,
        size: Size,
        addresses: tuple[bytes, ...],
        digest: bytes,
        length: int,
    ) -> Recipe:
        checkpoint = warm.losses.checkpoint
        return Recipe(
            head_seq=warm.seq,
            head_digest=warm.digest,
            request_head=addresses[0],
            pins=addresses[1],
            stream=work.request.stream,
            input_tokens_estimate=size.tokens,
            input_tokens_limit=warm.frame(work.request.runtime).limits.input_tokens_limit,
            request_digest=digest,
            request_bytes=length,
            losses_version=warm.losses.version,
            transitions=warm.losses.count,
            transitions_digest=warm.losses.digest,
            checkpoint_id=checkpoint.id if checkpoint else "",
            size_source=size.source,
            anchor_snapshot_id=size.anchor_snapshot_id,
            anchor_tokens=size.anchor_tokens,
            recovery=work.recovery,
            overflowed_snapshot_id=work.request.overflowed_snapshot_id,
            reason=work.reason,
        )

    async def _summary_needed(
        self, work: _Work, warm: Warm, wanted: SummaryWanted
    ) -> pb.PrepareRequestResponse:
        """The request for a summary, with a snapshot of its own: the same bytes as the working
        request through the cut, so that the provider's cache is used."""
        request, key, frame = work.request, work.key, warm.frame(work.request.runtime)
        head = Head(seq=wanted.cut.through_seq, digest=wanted.cut.through_digest)
        past = await self._history.past(request.fence.thread, head, warm.losses)
        tail = summary_tail(instruction(wanted.bytes_max), has_tools=bool(frame.runtime.tools))
        body, digest = past.request(frame.head, tail)
        addresses = await self._snapshots.addresses(key, frame, tail)
        size = _estimated(past, frame)
        past.frame(request.runtime)
        made = self._recipe(work, past, size, addresses, digest, len(body))
        made = recipe.for_summary(made, addresses[2], wanted.plan_id)
        id = recipe.snapshot_id(
            key, request.turn_id, request.round, request.attempt, wanted.plan_id
        )
        await self._snapshots.put(request, key, id, made, (*frame.parts, tail), past)
        response = pb.PrepareRequestResponse()
        response.summary_needed.plan_id = wanted.plan_id
        _fill(response.summary_needed.request, request, id, made, body, frame, None)
        return response

    def _refused(self, work: _Work, warm: Warm, size: Size) -> pb.PrepareRequestResponse:
        limits = warm.frame(work.request.runtime).limits
        compacted = work.reason == "compacted" or work.recovery == "compaction"
        refused = pb.Refusal(
            input_tokens_estimate=size.tokens,
            input_tokens_limit=limits.input_tokens_max,
            window_tokens=limits.window_tokens,
            reason=(
                pb.REFUSAL_REASON_COMPACTION_LIMIT
                if compacted
                else pb.REFUSAL_REASON_INPUT_TOO_LARGE
            ),
        )
        return pb.PrepareRequestResponse(refused=refused)


def _estimated(warm: Warm, frame: Frame, anchor: Anchor | None = None) -> Size:
    around = len(frame.head) + len(request_tail(stream=True))
    return admission.size_of(around, warm.text_bytes, warm.media_tokens, anchor)


def _done_since(refused: Recipe, losses: Losses) -> str:
    """What was recorded since a refused request was made, by an owner that did not get further."""
    checkpoint = losses.checkpoint.id if losses.checkpoint else ""
    if checkpoint != refused.checkpoint_id:
        return "compaction"
    # Behind a recovery there is nothing but a summary left to do, whatever else was recorded.
    is_first = not refused.recovery
    return "images" if is_first and losses.count > refused.transitions else ""


def _fill(
    prepared: pb.PreparedRequest,
    request: pb.PrepareRequestRequest,
    id: str,
    made: Recipe,
    body: bytes,
    frame: Frame,
    losses: Losses | None,
) -> None:
    prepared.snapshot.CopyFrom(
        recipe.summary_of(made, id, request.turn_id, request.round, request.attempt)
    )
    prepared.body = body
    prepared.betas.extend(frame.betas)
    if losses is not None and losses.checkpoint is not None and not losses.is_copied:
        prepared.compaction_id = losses.checkpoint.id
