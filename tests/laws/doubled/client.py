"""The application: it sends messages, answers, decides and interrupts."""

from dataclasses import dataclass, field
from random import Random

from counterfoil.ledger.v1 import client_events_pb2, content_pb2, session_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import reference_pb2, runtime_pb2

from foundation.errors import Failure
from services.ledger import session_store
from tests.laws.doubled.network import Net
from tests.laws.doubled.stage import API_KEY, Stage

# 2 is CALL_STATE_OPEN.
_OPEN = """
SELECT use_event_id, owner FROM ledger.calls
WHERE workspace_id = $1 AND session_id = $2 AND state = 2
ORDER BY round, place
"""
_METADATA = (("x-api-key", API_KEY),)
_CUSTOM = runtime_pb2.TOOL_OWNER_CLIENT_CUSTOM


@dataclass
class Client:
    """One application with one session, and what it was promised."""

    stage: Stage
    net: Net
    random: Random
    thread: reference_pb2.ThreadRef = field(default_factory=reference_pb2.ThreadRef)
    messages: list[str] = field(default_factory=list[str])
    answered: dict[str, str] = field(default_factory=dict[str, str])
    """Accepted answers by use id: the text of a result, `allow` or `deny`."""
    interrupts: int = 0
    message_bytes: int = 0
    """How long messages are, at least."""

    async def open(self) -> None:
        """Create the session with its first message."""
        text = self._next_message()
        request = session_pb2.CreateSessionRequest(
            agent=session_pb2.AgentReference(
                agent=session_pb2.AgentVersionReference(id=self.stage.agent_id)
            ),
            environment_id=self.stage.environment_id,
            initial_events=[_message(text)],
        )
        created = await self.stage.sessions.CreateSession(request, metadata=_METADATA)
        db = await self.stage.kernel.database("ledger")
        self.thread.CopyFrom(await session_store.home_of_session(db, created.session.id))

    async def message(self) -> None:
        """One more message."""
        await self._submit(_message(self._next_message()))

    async def interrupt(self) -> None:
        """Stop what runs."""
        self.interrupts += 1
        self.net.log("client interrupts")
        await self._submit(
            client_events_pb2.ClientEvent(user_interrupt=client_events_pb2.UserInterrupt())
        )

    async def open_calls(self) -> list[tuple[str, bool]]:
        """Calls that wait for an answer: use id, and whether it takes a result."""
        db = await self.stage.kernel.database("ledger")
        rows = await db.fetch(_OPEN, self.thread.workspace_id, self.thread.session_id)
        return [(row["use_event_id"], row["owner"] == _CUSTOM) for row in rows]

    async def answer(self) -> bool:
        """Answer one open call; whether there was one."""
        calls = await self.open_calls()
        if not calls:
            return False
        use_id, custom = self.random.choice(calls)
        decision = self.random.choice(("allow", "allow", "deny"))
        said = f"answer {self.random.randrange(1000)}" if custom else decision
        self.net.log("client answers", use_id[-6:], said)
        if await self._submit(_answer(use_id, said, custom)):
            self.answered[use_id] = said
        else:
            self.net.blame(f"the answer to the open call {use_id} was refused")
        return True

    async def answer_again(self) -> None:
        """Another answer to a call that was answered: refused, whatever happened meanwhile."""
        if not self.answered:
            return
        use_id = self.random.choice(list(self.answered))
        custom = self.answered[use_id] not in ("allow", "deny")
        self.net.log("client answers again", use_id[-6:])
        if await self._submit(_answer(use_id, "changed" if custom else "allow", custom)):
            self.net.blame(f"a second answer to {use_id} was taken")

    async def _submit(self, event: client_events_pb2.ClientEvent) -> bool:
        request = session_pb2.SubmitEventsRequest(session_id=self.thread.session_id, events=[event])
        try:
            await self.stage.sessions.SubmitEvents(request, metadata=_METADATA)
        except Failure as failure:
            if failure.reason != reasons.ERROR_REASON_ACTION_REFUSED:
                self.net.blame(f"the client was answered {failure!r}")
            return False
        return True

    def _next_message(self) -> str:
        name = f"message {len(self.messages) + 1}"
        self.messages.append(
            f"{name} ".ljust(self.message_bytes, "x") if self.message_bytes else name
        )
        self.net.log("client sends", name)
        return self.messages[-1]


def _text(text: str) -> content_pb2.ContentBlock:
    return content_pb2.ContentBlock(text=content_pb2.TextBlock(text=text))


def _message(text: str) -> client_events_pb2.ClientEvent:
    return client_events_pb2.ClientEvent(
        user_message=client_events_pb2.UserMessage(content=[_text(text)])
    )


def _answer(use_id: str, said: str, custom: bool) -> client_events_pb2.ClientEvent:
    if custom:
        result = client_events_pb2.UserCustomToolResult(
            custom_tool_use_id=use_id, content=[_text(said)]
        )
        return client_events_pb2.ClientEvent(user_custom_tool_result=result)
    allow, deny = (
        client_events_pb2.CONFIRMATION_RESULT_ALLOW,
        client_events_pb2.CONFIRMATION_RESULT_DENY,
    )
    confirmation = client_events_pb2.UserToolConfirmation(
        tool_use_id=use_id, result=allow if said == "allow" else deny
    )
    return client_events_pb2.ClientEvent(user_tool_confirmation=confirmation)
