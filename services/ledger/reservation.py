"""A turn handed over at submission: claimed for a runner in the transaction that queues it."""

import asyncio
from typing import Self

from foundation.storage import CommitUnknown
from services.ledger import claiming
from services.ledger.change import Change
from services.ledger.dispatcher import Dispatcher
from services.ledger.lanes import Lanes
from services.ledger.streams import Key, RunnerStream


class Reservation:
    """A claim that is being made for a stream, if one has room: a block, and what was not given is
    given back."""

    def __init__(self, lanes: Lanes, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._stream: RunnerStream | None = None
        # A call that is one transaction hands nothing over before its end: runners are woken then.
        self._hands_over = not lanes.db.joined
        self._taken: tuple[Key, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._stream is None:
            return
        unknown = kind is not None and issubclass(kind, (asyncio.CancelledError, CommitUnknown))
        if unknown and self._taken is not None:
            self._dispatcher.doubt(self._stream, *self._taken)
        self._dispatcher.cancel(self._stream)

    def take(self, change: Change) -> None:
        """Claim the front turn in this transaction, if it can be and somebody has room."""
        self._taken = None  # an earlier decision on the same call does not count
        if not self._hands_over or not claiming.claimable(change.lane):
            return
        if self._stream is None:
            self._stream = self._dispatcher.reserve()
        if self._stream is not None and change.take(self._stream.id):
            self._taken = change.lane.key, change.lane.thread.epoch

    def give(self, change: Change) -> None:
        """The transaction is committed: hand over what it claimed."""
        if self._stream is not None and change.claim is not None:
            self._dispatcher.give(self._stream, change.claim)
            self._stream = None
