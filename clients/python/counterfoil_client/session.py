"""One session: send, stream, wait, answer."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing

from counterfoil_client.events import ClientEvent, Event, message
from counterfoil_client.failures import UnavailableError, translated
from counterfoil_client.gen.counterfoil.ledger.v1 import (
    ForkSessionRequest,
    ListEventsRequest,
    SessionServiceStub,
    StreamEventsRequest,
    SubmitEventsRequest,
)

Answer = Callable[[Event], Awaitable[ClientEvent]]
"""Makes the answer to a use event."""

_PAUSE_SECONDS = 0.1
_PAUSE_SECONDS_MAX = 5.0


class Session:
    """A session by its id. It keeps the position up to which it was read."""

    def __init__(self, stub: SessionServiceStub, id: str, credentials: Mapping[str, str]) -> None:
        self.id = id
        self.position: int | None = None
        """Everything up to here was delivered by `events`; None before the first event."""
        self._stub = stub
        self._credentials = credentials

    async def send(self, *events: ClientEvent, idempotency_key: str | None = None) -> list[Event]:
        """Sends events, all or none, and returns them as they were stored.

        With a key, a repetition within 24 hours gets the first answer and changes nothing.
        """
        # What a call brings along replaces the stub's own metadata.
        metadata = dict(self._credentials)
        if idempotency_key is not None:
            metadata["idempotency-key"] = idempotency_key
        request = SubmitEventsRequest(session_id=self.id, events=list(events))
        async with translated():
            response = await self._stub.submit_events(request, metadata=metadata)
        return [Event.of_json(raw) for raw in response.data]

    async def fork(
        self,
        at: Event | None = None,
        *,
        title: str | None = None,
        metadata: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> "Session":
        """A new session whose model has seen what this one's had at an event, which ends a turn;
        without one, at the end of the newest finished turn.

        Title and metadata are this session's unless they are given. With a key, a repetition within
        24 hours gets the same session.
        """
        own = dict(self._credentials)
        if idempotency_key is not None:
            own["idempotency-key"] = idempotency_key
        request = ForkSessionRequest(
            session_id=self.id,
            at_event_id=None if at is None else at.id,
            title=title,
            metadata=dict(metadata or {}),
        )
        async with translated():
            made = (await self._stub.fork_session(request, metadata=own)).session
        assert made is not None
        return Session(self._stub, made.id, self._credentials)

    async def history(self, limit: int = 1000) -> list[Event]:
        """Every event so far, read in pages of `limit`."""
        found: list[Event] = []
        page: str | None = None
        while True:
            request = ListEventsRequest(session_id=self.id, limit=limit, page=page)
            async with translated():
                response = await self._stub.list_events(request)
            found += [Event.of_json(raw) for raw in response.data]
            page = response.next_page
            if not page:
                return found

    async def events(self) -> AsyncGenerator[Event]:
        """Every event behind `position` as it comes, without gap or repetition.

        Without a position: every event from the moment at which the server has the subscription;
        `subscribe` first, when something is sent meanwhile. A broken connection is opened again
        behind the last event. It ends when the session is over.
        """
        pause = _PAUSE_SECONDS
        while True:
            try:
                async with aclosing(self._connection()) as found:
                    async for event in found:
                        pause = _PAUSE_SECONDS
                        yield event
                return
            except UnavailableError:
                if self.position is None:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    async def _connection(self) -> AsyncGenerator[Event]:
        request = StreamEventsRequest(session_id=self.id, position_after=self.position)
        over = False
        async with translated():
            async for batch in self._stub.stream_events(request):
                for frame in batch.frames:
                    if frame.position:
                        self.position = frame.position
                    yield Event.of_json(frame.json, frame.position)
                self.position = max(self.position or 0, batch.position_through)
                over = over or batch.end
        if not over:
            raise UnavailableError("the stream ended, the session did not")

    async def until_idle(self) -> list[Event]:
        """The next events up to the one that says that the session waits for somebody.

        Call it when something was sent: an idle session says nothing. It reads on behind what
        `events` or the last call delivered; before the first of them call `subscribe`.
        """
        seen: list[Event] = []
        async with aclosing(self.events()) as coming:
            async for event in coming:
                seen.append(event)
                if event.stop_reason is not None:
                    break
        return seen

    async def subscribe(self) -> None:
        """Takes the position of now, so that the next call of `until_idle` begins here."""
        request = StreamEventsRequest(session_id=self.id)
        async with translated():
            stream = self._stub.stream_events(request)
            async with aclosing(stream):  # pyright: ignore[reportArgumentType]
                async for batch in stream:
                    self.position = batch.position_through
                    return

    async def ask(self, text: str, tools: Mapping[str, Answer] | None = None) -> list[Event]:
        """Sends a message, answers the calls of these tools by name, and waits for the end of the
        turn; every event of it.

        A call of a tool that is not among them is left open: then the list ends with an idle event
        whose `waits_for` names it.
        """
        if self.position is None:
            await self.subscribe()
        await self.send(message(text))
        seen = await self.until_idle()
        while seen[-1].stop_reason == "requires_action":
            known = {event.id: event for event in seen}
            answers: list[ClientEvent] = []
            for use in (known[id] for id in seen[-1].waits_for if id in known):
                answer = (tools or {}).get(use.data["name"])
                if answer is not None:
                    answers.append(await answer(use))
            if not answers:
                break
            await self.send(*answers)
            seen += await self.until_idle()
        return seen
