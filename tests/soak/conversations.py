"""A session of the soak: what its writer sends, and what was promised to it."""

import asyncio
from dataclasses import dataclass, field

from bench.chat import message, result
from tests.soak.wire import Caller, Event
from tests.support.model import script, use

_TURN_SECONDS_MAX = 60.0


class Stuck(Exception):
    """A turn did not end, or not with an answer."""


@dataclass
class Conversation:
    """One session."""

    session: str
    accepted: list[str] = field(default_factory=list[str])
    """Ids of events that the server acknowledged."""
    answers: list[str] = field(default_factory=list[str])
    """The text that the model says at the end of each turn."""
    _idles: asyncio.Queue[Event] = field(default_factory=asyncio.Queue[Event])
    _known: set[str] = field(default_factory=set[str])
    _exchanges: int = 0

    def came(self, event: Event) -> None:
        """An event, from any of the readers."""
        if event.type == "session.status_idle" and event.id not in self._known:
            self._known.add(event.id)
            self._idles.put_nowait(event)

    async def turn(self, caller: Caller) -> None:
        """One exchange: a gate, a text, a platform tool, or two messages at once, in turn."""
        number = self._exchanges = self._exchanges + 1
        match number % 4:
            case 0:
                await self._send(caller, self._asking(number, "decide"))
                (action,) = await self._idle("requires_action")
                await self._send(caller, result(action))
            case 1:
                await self._send(caller, self._asking(number))
            case 2:
                await self._send(caller, self._asking(number, "note"))
            case _:
                both = self._asking(number), self._asking(-number)
                await self._send(caller, *both)
        await self._idle("end_turn")

    def _asking(self, number: int, tool: str = "") -> dict[str, object]:
        answer = f"answer {number}"
        self.answers.append(answer)
        steps = [{"content": [use(tool, text=str(number))]}] if tool else []
        return message(script(*steps, answer))

    async def _send(self, caller: Caller, *events: object) -> None:
        path = f"/v1/sessions/{self.session}/events"
        answer = await caller.post(path, {"events": events})
        self.accepted += [event["id"] for event in answer["data"]]

    async def _idle(self, wanted: str) -> list[str]:
        try:
            async with asyncio.timeout(_TURN_SECONDS_MAX):
                idle = await self._idles.get()
        except TimeoutError:
            raise Stuck(f"{self.session}: no {wanted} in {_TURN_SECONDS_MAX:.0f} s") from None
        reason = idle.stop_reason
        if reason is None or reason.type != wanted:
            raise Stuck(f"{self.session}: idle with {reason} instead of {wanted}")
        return reason.event_ids
