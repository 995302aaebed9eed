"""What was received: exact bodies, and how much of each was a repeat of an earlier one."""

import asyncio
import bisect
import hashlib
from collections import OrderedDict, deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from offline_model.requests import Request

MEMORY_BYTES_MAX = 64 * 1024 * 1024
RECORDS_MAX = 100_000
_SECRET = ("authorization", "x-api-key", "cookie", "proxy-authorization")

Disposition = Literal["open", "answered", "disconnected", "dropped"]


class Record(Struct):
    """One request. ``prefix_bytes``: how many leading bytes of its ``messages`` an earlier
    request of the same model and system (``prefix_seq``) had in common with it."""

    seq: int
    time: str
    path: str
    sha256: str
    headers: dict[str, str]
    request_id: str
    model: str = ""
    stream: bool = False
    step: str = ""
    status: int = 0
    disposition: Disposition = "open"
    body_bytes: int = 0
    region_bytes: int = 0
    prefix_bytes: int = 0
    prefix_seq: int | None = None
    repeat: int = 0
    input_tokens: int = 0


class Prefixes:
    """Longest common prefix with any earlier region: in sorted order it is with a neighbour."""

    def __init__(self) -> None:
        self._groups: OrderedDict[bytes, list[tuple[bytes, int]]] = OrderedDict()
        self._bytes = 0

    def add(self, group: bytes, region: bytes, seq: int) -> tuple[int, int | None]:
        """(common bytes, seq of that earlier request) for ``region``, which is then kept."""
        regions = self._groups.setdefault(group, [])
        self._groups.move_to_end(group)
        at = bisect.bisect_left(regions, (region, -1))
        best, place = 0, None
        for index in range(max(0, at - 1), min(at + 1, len(regions))):
            length = common_prefix(region, regions[index][0])
            if length > best:
                best, place = length, index
        best_seq = None if place is None else regions[place][1]
        if place is not None and best >= len(regions[place][0]) - 1:
            # The new region goes on where the old one closed its bracket: one per conversation
            # is enough, or memory would grow with the square of its length.
            self._bytes -= len(regions.pop(place)[0])
        bisect.insort(regions, (region, seq))
        self._bytes += len(region)
        self._trim()
        return best, best_seq

    def _trim(self) -> None:
        while self._bytes > MEMORY_BYTES_MAX and len(self._groups) > 1:
            _, dropped = self._groups.popitem(last=False)
            self._bytes -= sum(len(region) for region, _ in dropped)
        for regions in self._groups.values():
            while self._bytes > MEMORY_BYTES_MAX and len(regions) > 1:
                oldest = min(range(len(regions)), key=lambda index: regions[index][1])
                self._bytes -= len(regions.pop(oldest)[0])


def common_prefix(a: bytes, b: bytes) -> int:
    """Length of the longest common prefix, by halving over slices."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class Recorder:
    """Keeps every request; with a folder, on disk, where the numbering continues later."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._seq = 0
        self._changed = asyncio.Condition()
        self._start()

    def _start(self) -> None:
        self.records: deque[Record] = deque(maxlen=RECORDS_MAX)
        self._bodies: OrderedDict[int, bytes] = OrderedDict()
        self._body_bytes = 0
        self._prefixes = Prefixes()
        self._repeats: dict[bytes, int] = {}
        if self._folder:
            self._folder.mkdir(parents=True, exist_ok=True)
            taken = [int(p.stem) for p in self._folder.glob("*.json") if p.stem.isdigit()]
            self._seq = max([self._seq, *taken])

    def reset(self) -> None:
        """Forgets what is in memory (numbers go on, files stay)."""
        self._start()

    async def received(
        self, path: str, headers: dict[str, str], body: bytes, request_id: str
    ) -> Record:
        """Stores a request before anything is decided about it."""
        self._seq += 1
        record = Record(
            seq=self._seq,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            path=path,
            sha256=hashlib.sha256(body).hexdigest(),
            headers={k: v for k, v in headers.items() if k not in _SECRET},
            request_id=request_id,
            body_bytes=len(body),
        )
        if self._folder:
            (self._folder / f"{record.seq}.json").write_bytes(body)
        else:
            self._keep(record.seq, body)
        self.records.append(record)
        async with self._changed:
            self._changed.notify_all()
        return record

    def understood(self, record: Record, request: Request) -> None:
        """Adds what parsing told: model, prefix, and how often these messages came before."""
        record.model, record.stream = request.model, request.stream
        record.region_bytes = len(request.region)
        system = hashlib.sha256(request.system).digest()
        group = request.model.encode() + b"\0" + system
        record.prefix_bytes, record.prefix_seq = self._prefixes.add(
            group, request.region, record.seq
        )
        key = hashlib.sha256(group + request.region).digest()
        record.repeat = self._repeats.get(key, 0)
        self._repeats[key] = record.repeat + 1

    async def finished(self, record: Record, disposition: Disposition) -> None:
        """Notes how it ended; with a folder this writes its index line."""
        record.disposition = disposition
        if self._folder:
            with (self._folder / "index.jsonl").open("ab", buffering=0) as index:
                index.write(msgspec.json.encode(record) + b"\n")
        async with self._changed:
            self._changed.notify_all()

    async def wait(self, at_least: int, finished: bool, seconds: float) -> list[Record]:
        """The records, once ``at_least`` came (and ended, if asked) or the time is over."""

        def enough() -> bool:
            ended = [r for r in self.records if not finished or r.disposition != "open"]
            return len(ended) >= at_least

        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(enough)
        except TimeoutError:
            pass
        return list(self.records)

    def body(self, seq: int) -> bytes | None:
        """The exact body, or None when it is unknown (or fell out of memory)."""
        if self._folder:
            file = self._folder / f"{seq}.json"
            return file.read_bytes() if file.exists() else None
        return self._bodies.get(seq)

    def _keep(self, seq: int, body: bytes) -> None:
        self._bodies[seq] = body
        self._body_bytes += len(body)
        while self._body_bytes > MEMORY_BYTES_MAX and len(self._bodies) > 1:
            _, dropped = self._bodies.popitem(last=False)
            self._body_bytes -= len(dropped)
