"""Runner streams of this process: what each holds, and the messages on their way to it."""

import asyncio
import time
from dataclasses import dataclass, field

from counterfoil.ledger.v1 import turn_pb2
from counterfoil.types.v1 import reference_pb2

SILENT_S = 5.0
"""A runner that missed its heartbeats for so long gets no new claim; half of a lease's time."""

Key = tuple[str, str, str]
"""Workspace, session and thread id."""


def stream_prefix(boots: str) -> str:
    """How ids of streams begin that were made by processes on one data folder; empty for a process
    without one."""
    return f"{boots}/" if boots else ""


def key_of(thread: reference_pb2.ThreadRef) -> Key:
    """The thread's name as a key."""
    return thread.workspace_id, thread.session_id, thread.thread_id


def held_claim(key: Key, epoch: int) -> turn_pb2.HeldClaim:
    """A claim's name."""
    thread = reference_pb2.ThreadRef(workspace_id=key[0], session_id=key[1], thread_id=key[2])
    return turn_pb2.HeldClaim(thread=thread, epoch=epoch)


@dataclass(eq=False)
class RunnerStream:
    """One attached runner. `reserved` counts claims that are being made for it."""

    id: str
    runner_name: str
    capacity: int
    held: dict[Key, int] = field(default_factory=dict[Key, int])
    reserved: int = 0
    lost: bool = False
    outgoing: "asyncio.Queue[turn_pb2.AttachResponse]" = field(
        default_factory=lambda: asyncio.Queue[turn_pb2.AttachResponse]()
    )
    heard_at: float = field(default_factory=time.monotonic)
    """When the runner last gave a sign of life."""
    erasures: int = 0
    """Deleted threads that it was asked to erase."""
    # Claims in the database that the runner was not told of, at the last heartbeat.
    suspects: frozenset[tuple[Key, int]] = frozenset()
    excused: set[tuple[Key, int]] = field(default_factory=set[tuple[Key, int]])
    told_interrupted: set[tuple[Key, int]] = field(default_factory=set[tuple[Key, int]])

    @property
    def room(self) -> int:
        """How many turns it may get now: none while it is silent, because a stopped or stuck
        runner would let every lease expire, and turns would be quarantined for its fault."""
        if self.lost or self.silent:
            return 0
        return self.capacity - len(self.held) - self.reserved

    @property
    def silent(self) -> bool:
        """Whether the runner missed its heartbeats."""
        return time.monotonic() - self.heard_at > SILENT_S

    def give(self, claim: turn_pb2.Claim) -> None:
        """Hand a claim over, unless it was freed before it came here."""
        name = key_of(claim.thread), claim.epoch
        if name in self.excused:
            self.excused.discard(name)
            return
        self.held[key_of(claim.thread)] = claim.epoch
        self.outgoing.put_nowait(turn_pb2.AttachResponse(claim=claim))

    def drop(self, key: Key, epoch: int) -> bool:
        """A claim ended; whether it was held."""
        self.told_interrupted.discard((key, epoch))
        if self.held.get(key) != epoch:
            return False
        del self.held[key]
        return True

    def excuse(self, key: Key, epoch: int) -> None:
        """A claim that nobody seemed to make was freed: it is not, or no longer, handed over."""
        if self.held.get(key) == epoch:
            self.fence(key, epoch)
        else:
            self.excused.add((key, epoch))

    def fence(self, key: Key, epoch: int) -> None:
        """A held claim is gone: the runner must stop."""
        if self.drop(key, epoch):
            fenced = held_claim(key, epoch)
            self.outgoing.put_nowait(turn_pb2.AttachResponse(fenced=fenced))

    def interrupt(self, key: Key, epoch: int, turn_id: str) -> None:
        """An interrupt waits for a held turn; told once a claim."""
        if self.held.get(key) != epoch or (key, epoch) in self.told_interrupted:
            return
        self.told_interrupted.add((key, epoch))
        notice = turn_pb2.InterruptNotice(claim=held_claim(key, epoch), turn_id=turn_id)
        self.outgoing.put_nowait(turn_pb2.AttachResponse(interrupt=notice))
