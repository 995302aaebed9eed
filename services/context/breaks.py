"""Counts requests that do not go on where the thread's request before them ended, by cause.

Nearly every request is written behind the last one, in the same buffer: nothing has to be looked
at. Only where a process begins with a thread, or its frame or its losses are new, the request is
compared with the recipe of the one before, by its digest.
"""

import hashlib

import structlog
from counterfoil.context.v1 import snapshots_pb2 as pb
from counterfoil.types.v1.reference_pb2 import ThreadRef

from foundation import measures
from foundation.errors import Failure
from foundation.json import enum_literals
from foundation.storage import Database, SealBroken, SealRing
from foundation.storage.errors import Unavailable
from services.context import diff, page_store, recipe
from services.context.materializer import request_tail
from services.context.parts import Parts
from services.context.recipe import Frame, Recipe, ThreadKey, thread_key
from services.context.rewriting import Rewriting

CAUSES = enum_literals(pb.ContextChange.DESCRIPTOR)

_EMPTY = b"]}"
"""What makes a request without messages of a head."""

_log = structlog.get_logger("counterfoil.context")


def goes_on(body: bytes, previous: Recipe) -> bool:
    """Whether a request begins with all of a request before it, up to its last message. Pure."""
    tail = request_tail(stream=previous.stream)
    end = previous.request_bytes - len(tail)
    if end > len(body):
        return False
    digest = hashlib.sha256(memoryview(body)[:end])
    digest.update(tail)
    return digest.digest() == previous.request_digest


class Breaks:
    """Watches the requests of one database."""

    def __init__(self, db: Database, ring: SealRing, rewriting: Rewriting) -> None:
        self._db = db
        self._ring = ring
        self._parts = Parts(db, ring)
        self._rewriting = rewriting
        # There from the start, so that an alarm can be set on it.
        measures.PREFIX_BREAKS.cell(CAUSES[pb.CONTEXT_CHANGE_BUG])

    async def watch(
        self, thread: ThreadRef, id: str, made: Recipe, frame: Frame, body: bytes
    ) -> diff.Change:
        """Compare a stored request with the thread's one before it, and count a break. Nothing
        that is wrong with the one before may hold up the new one."""
        if made.head_seq == 1:
            return pb.CONTEXT_CHANGE_APPENDED  # the thread has just begun
        try:
            return await self._watch(thread, id, made, frame, body)
        except (Failure, SealBroken, Unavailable) as error:
            _log.warning("a request was not compared", snapshot=id, error=str(error))
            return pb.CONTEXT_CHANGE_UNSPECIFIED

    async def _watch(
        self, thread: ThreadRef, id: str, made: Recipe, frame: Frame, body: bytes
    ) -> diff.Change:
        key = thread_key(thread)
        previous = await self._previous(key, id)
        if previous is None or goes_on(body, previous):
            return pb.CONTEXT_CHANGE_APPENDED
        cause = diff.cause_of(await self._made(key, previous), _made(made, frame.head, frame.pins))
        if cause == pb.CONTEXT_CHANGE_BUG:
            if await self._rewriting.is_between(thread, previous.head_seq, made.head_seq):
                cause = pb.CONTEXT_CHANGE_WITHHELD
            else:
                _log.error("a request broke its prefix and nothing says why", snapshot=id)
        measures.PREFIX_BREAKS.cell(CAUSES[cause]).value += 1
        return cause

    async def _previous(self, key: ThreadKey, id: str) -> Recipe | None:
        """The newest other request of the thread that asks for an answer."""
        rows = await page_store.newest_others(self._db, key, id)
        recipes = (recipe.open_row(self._ring, key, row) for row in rows)
        return next((one for one in recipes if one.purpose == "working"), None)

    async def _made(self, key: ThreadKey, stored: Recipe) -> diff.Made:
        parts = await self._parts.open(key[0], [stored.request_head, stored.pins])
        return _made(stored, parts[stored.request_head], parts[stored.pins])


def _made(one: Recipe, head: bytes, pins: bytes) -> diff.Made:
    facts = recipe.read_pins(pins)
    return diff.made_of(
        diff.take_apart(head + _EMPTY),
        (*facts.profile, facts.materializer),
        checkpoint_id=one.checkpoint_id,
        transition_head=(one.transitions, one.transitions_digest),
    )
