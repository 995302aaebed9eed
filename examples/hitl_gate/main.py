"""Gate an agent's actions on your application and on a human.

An agent reads two expense receipts. It cannot approve anything by itself; it can only ask this
program, through two custom tools:

    decide     for a clear receipt: the application records the decision
    escalate   for a doubtful one: a human decides, here on the terminal

The session lives on the server and waits as long as it takes. Stop this program, or the server,
at any moment; start them again, and the session continues where it was. Four habits make that so:

 1. The server's history is the truth about the conversation. Nothing of it is kept here.
 2. Open the event stream first, then list the history, then read on, skipping what was seen.
    In this order no event falls between the two.
 3. Store a business result before sending it, under the id of the call that it answers. Then
    sending it again is always safe, and no call is ever decided twice.
 4. Send only what the history does not have yet.

Run it beside `make run`:

    .venv/bin/python -m examples.hitl_gate
"""

import argparse
import json
import os
import secrets
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

# The SDK sends its requests with httpx2, and a stream that breaks raises httpx2's errors.
import httpx2
from anthropic import Anthropic, APIConnectionError, APIStatusError, BadRequestError, NotFoundError
from anthropic.types.beta.sessions import BetaManagedAgentsAgentCustomToolUseEvent as ToolCall
from anthropic.types.beta.sessions import BetaManagedAgentsSessionEvent as HistoryEvent
from anthropic.types.beta.sessions import BetaManagedAgentsStreamSessionEvents as StreamEvent

BASE_URL = "http://127.0.0.1:8080"
API_KEY = "cf-local-development"
MODEL_ID = "claude-sonnet-5-5"
STATE_FILE = Path("hitl_gate.sqlite3")
AGENT_FILE = Path(__file__).with_name("agent.json")
RECONNECT_PAUSE_S = 0.5
FAILURES_MAX = 20
LOST = (APIConnectionError, APIStatusError, httpx2.TransportError)

RECEIPTS = {
    "r01": "USD 12.40, taxi from the airport to the office; the printed receipt is attached.",
    "r02": "USD 900, team dinner; a handwritten note, no itemized receipt, guests not stated.",
}


# --- what this application must not forget -------------------------------------------------------


class Store:
    """The application's own durable memory, one SQLite file.

    `resource` remembers which session we work on, so that a restart finds it again. `decision`
    is the business record: one row for each call that was answered, and it outlives the session.
    """

    def __init__(self, path: Path) -> None:
        # Autocommit: when a statement returns, it is on the disk.
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("CREATE TABLE IF NOT EXISTS resource (kind TEXT PRIMARY KEY, id TEXT)")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS decision"
            " (call_id TEXT PRIMARY KEY, session_id TEXT, receipt_id TEXT, result TEXT)"
        )

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def recall(self, kind: str) -> str | None:
        """The id of a resource that an earlier start created."""
        return self._one("SELECT id FROM resource WHERE kind = ?", kind)

    def remember(self, kind: str, id: str) -> str:
        """Note a resource that now exists; returns its id."""
        self._db.execute("INSERT OR REPLACE INTO resource VALUES (?, ?)", (kind, id))
        return id

    def forget(self, kind: str) -> None:
        """Note that a resource is gone."""
        self._db.execute("DELETE FROM resource WHERE kind = ?", (kind,))

    def result_of_call(self, call_id: str) -> str | None:
        """The result that was recorded for this call."""
        return self._one("SELECT result FROM decision WHERE call_id = ?", call_id)

    def result_of_receipt(self, session_id: str, receipt_id: str) -> str | None:
        """The result that was recorded for this receipt, whichever call asked for it."""
        query = "SELECT result FROM decision WHERE session_id = ? AND receipt_id = ?"
        return self._one(query, session_id, receipt_id)

    def record(self, call_id: str, session_id: str, receipt_id: str, result: str) -> str:
        """Record a result unless the call has one; returns the one that counts."""
        row = (call_id, session_id, receipt_id, result)
        self._db.execute("INSERT OR IGNORE INTO decision VALUES (?, ?, ?, ?)", row)
        return self.result_of_call(call_id) or result

    def _one(self, query: str, *values: str) -> str | None:
        row: tuple[str] | None = self._db.execute(query, values).fetchone()
        return row[0] if row else None


# --- the session, as its events tell it ----------------------------------------------------------


class Conversation:
    """Folds events into what this program needs to know; history and live events alike."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.asked = False
        self.calls: dict[str, ToolCall] = {}
        self.answered: set[str] = set()
        self.barrier: list[str] = []
        self.reply = ""
        self.error = ""
        self.ended = ""

    def observe(self, event: HistoryEvent | StreamEvent) -> None:
        """Take in one event. An event that was seen before changes nothing."""
        if event.type == "event_start" or event.type == "event_delta" or event.id in self.seen:
            return
        self.seen.add(event.id)
        if event.type == "user.message":
            self.asked = True
        elif event.type == "agent.custom_tool_use":
            self.calls[event.id] = event
        elif event.type == "user.custom_tool_result":
            self.answered.add(event.custom_tool_use_id)
        elif event.type == "agent.message":
            self.reply = "".join(part.text for part in event.content if part.type == "text")
        elif event.type == "session.error":
            self.error = event.error.message
        elif event.type == "session.status_running":
            self.barrier, self.ended = [], ""
        elif event.type == "session.status_idle":
            self._stopped(event.stop_reason.type, getattr(event.stop_reason, "event_ids", []))
        elif event.type == "session.status_terminated" or event.type == "session.deleted":
            self._stopped("terminated", [])

    def _stopped(self, reason: str, event_ids: list[str]) -> None:
        # `requires_action` is the barrier: the session waits for an answer to each of these calls.
        # After each answer but the last it is announced again, with the ids that remain.
        self.barrier = event_ids
        self.ended = "" if reason == "requires_action" else reason

    def missing(self) -> list[ToolCall]:
        """The calls of the barrier that nobody has answered, those without a human first."""
        open_ids = [id for id in self.barrier if id not in self.answered]
        return sorted((self.calls[id] for id in open_ids), key=lambda call: call.name == "escalate")


# --- the business: what the two tools do ---------------------------------------------------------


def resolve(store: Store, session_id: str, call: ToolCall) -> str:
    """The result of a call, as JSON text; recorded before this returns.

    A call, and a receipt, is decided once: the second time the recorded result is returned. So a
    restart does not ask the human again, and the model cannot decide what a human has rejected.
    """
    receipt_id = str(call.input.get("receipt_id"))
    result = store.result_of_call(call.id) or store.result_of_receipt(session_id, receipt_id)
    if result is None and receipt_id not in RECEIPTS:
        # The model's mistake is the model's to fix: tell it, and record nothing.
        return json.dumps({"recorded": False, "error": f"there is no receipt {receipt_id}"})
    if result is None:
        result = json.dumps(decide(receipt_id, call))
    return store.record(call.id, session_id, receipt_id, result)


def decide(receipt_id: str, call: ToolCall) -> dict[str, object]:
    """Decide about a receipt: as the agent says when that is clear, else as a human says."""
    action = call.input.get("action")
    if call.name == "decide" and action in ("approve", "reject"):
        say(f"\nThe application records {action} for {receipt_id}.")
        return {"recorded": True, "receipt_id": receipt_id, "decision": action}
    say(f"\nA human is asked about {receipt_id}: {RECEIPTS[receipt_id]}")
    say(f"The agent's question: {call.input.get('question', '(none)')}")
    return {"recorded": True, "receipt_id": receipt_id, "human_decision": ask_human()}


def ask_human() -> str:
    """Ask on the terminal until the answer is one of the two. Raises EOFError when it closes."""
    while True:
        answer = input("Decision [approve/reject]: ").strip().lower()
        if answer in ("approve", "reject"):
            return answer
        say("Please type approve or reject.")


# --- the conversation ----------------------------------------------------------------------------


class Gate:
    """Works on one session until its turn is complete."""

    def __init__(self, client: Anthropic, store: Store, session_id: str) -> None:
        self._events = client.beta.sessions.events
        self._store = store
        self._session_id = session_id
        self._talk = Conversation()
        self._shown: set[str] = set()

    def run(self) -> Conversation:
        """Follow the session to the end of its turn, through lost connections and restarts."""
        failures = 0
        while not self._talk.ended:
            known = len(self._talk.seen)
            try:
                self._follow()
            except LOST as error:
                if isinstance(error, APIStatusError) and 400 <= error.status_code < 500:
                    raise  # the request was wrong: repeating it would not help
                failures = failures + 1 if len(self._talk.seen) == known else 1
                if failures == 1:
                    say("\nThe connection broke; trying again ...")
                if failures == FAILURES_MAX:
                    raise
            if not self._talk.ended:
                time.sleep(RECONNECT_PAUSE_S)
        return self._talk

    def _follow(self) -> None:
        """Open, list, read on. Returns when the turn is complete or the stream ends."""
        with self._events.stream(self._session_id) as stream:
            self._read_history()
            # Act only now: the first half of a history asks for things that the rest answers.
            self._act()
            if self._talk.ended:
                return
            for event in stream:
                self._talk.observe(event)
                self._act()
                if self._talk.ended:
                    return

    def _read_history(self) -> None:
        for event in self._events.list(self._session_id):
            self._talk.observe(event)

    def _act(self) -> None:
        if not self._talk.asked:
            self._send_receipts()
        missing = self._talk.missing()
        new = [call for call in missing if call.id not in self._shown]
        if new:
            say("\nThe agent asks for these actions of the application:")
        for call in new:
            self._shown.add(call.id)
            say(f"  {call.name} {json.dumps(call.input, ensure_ascii=False)}")
        for left, call in zip(reversed(range(len(missing))), missing, strict=True):
            self._answer(call, resolve(self._store, self._session_id, call))
            if left:
                say(f"Stored. The session still waits at the barrier, for {left} more.")

    def _send_receipts(self) -> None:
        lines = [f"{id}: {text}" for id, text in RECEIPTS.items()]
        text = "\n".join(["Please handle these receipts.", *lines])
        self._events.send(
            self._session_id,
            events=[{"type": "user.message", "content": [{"type": "text", "text": text}]}],
        )
        self._talk.asked = True
        say("Sent two receipts:", *lines, sep="\n  ")

    def _answer(self, call: ToolCall, result: str) -> None:
        """Send one result, in a request of its own, under the id of the call's event."""
        try:
            self._events.send(
                self._session_id,
                events=[
                    {
                        "type": "user.custom_tool_result",
                        "custom_tool_use_id": call.id,
                        "content": [{"type": "text", "text": result}],
                    }
                ],
            )
        except BadRequestError:
            # Perhaps an answer of ours arrived, but the response to it was lost. The history
            # knows; if it has no answer to this call, the request really was wrong.
            self._read_history()
            if call.id not in self._talk.answered:
                raise
        self._talk.answered.add(call.id)


# --- the program ---------------------------------------------------------------------------------


def open_session(client: Anthropic, store: Store, model: str) -> str:
    """The id of the session that an earlier start left, or of a new one."""

    session_id = store.recall("session")
    if session_id is not None:
        say(f"Continuing session {session_id}.")
        return session_id
    environment_id, agent_id = store.recall("environment"), store.recall("agent")
    if environment_id is None:
        environment = client.beta.environments.create(name=f"expenses-{secrets.token_hex(4)}")
        environment_id = store.remember("environment", environment.id)
    if agent_id is None:
        definition = json.loads(AGENT_FILE.read_text())  # name, system prompt, the two tools
        agent = client.beta.agents.create(model=model, **definition)
        agent_id = store.remember("agent", agent.id)
    session = client.beta.sessions.create(agent=agent_id, environment_id=environment_id)
    say(f"Created session {session.id}.")
    return store.remember("session", session.id)


def clean_up(client: Anthropic, store: Store) -> None:
    """Delete session and environment, archive the agent. Can be repeated after any failure."""
    store.remember("finished", "yes")
    removals: list[tuple[str, Callable[[str], object]]] = [
        ("session", client.beta.sessions.delete),
        ("environment", client.beta.environments.delete),
        ("agent", client.beta.agents.archive),
    ]
    for kind, remove in removals:
        id = store.recall(kind)
        if id is not None:
            with suppress(NotFoundError):
                remove(id)
            store.forget(kind)
    store.forget("finished")
    say("Deleted the session and the environment, archived the agent.")


def converse(client: Anthropic, store: Store, model: str, keep: bool) -> int:
    """One run: returns the exit status."""
    if store.recall("finished"):
        say("The last run was complete; its resources are still to be removed.")
        clean_up(client, store)
        return 0
    session_id = open_session(client, store, model)
    talk = Gate(client, store, session_id).run()
    if talk.ended == "end_turn":
        say("\nThe agent's final response:", talk.reply, "", sep="\n")
    else:
        say(f"\nThe session ended with {talk.ended}. {talk.error}\n")
    undecided = [id for id in RECEIPTS if not store.result_of_receipt(session_id, id)]
    if undecided:
        say(f"The agent asked for no decision about {', '.join(undecided)}.")
    if keep:
        say(f"Kept session {session_id}; start again without KEEP_RESOURCES to remove it.")
    else:
        clean_up(client, store)
    return 0 if talk.ended == "end_turn" and not undecided else 1


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    forget_model_credentials()
    parser = argparse.ArgumentParser(description="Gate an agent's actions on a human.")
    parser.add_argument(
        "--state", type=Path, default=STATE_FILE, help=f"file that survives restarts ({STATE_FILE})"
    )
    state: Path = parser.parse_args(arguments).state
    base_url = os.environ.get("COUNTERFOIL_EXAMPLE_BASE_URL", BASE_URL)
    client = Anthropic(base_url=base_url, api_key=os.environ.get("COUNTERFOIL_API_KEY", API_KEY))
    model = os.environ.get("COUNTERFOIL_EXAMPLE_MODEL_ID", MODEL_ID)
    keep = os.environ.get("COUNTERFOIL_EXAMPLE_KEEP_RESOURCES") == "1"
    with client, closing(Store(state)) as store:
        try:
            return converse(client, store, model, keep)
        except EOFError:
            say("\nNobody is here to decide. The session waits; start again to continue.")
            return 0
        except KeyboardInterrupt:
            say("\nStopped. The session goes on without us; start again to continue.")
            return 130
        except NotFoundError as error:
            say(f"{error.message}\nIf the server's data is gone, delete {state} to start over.")
        except (APIConnectionError, httpx2.TransportError):
            say(f"No answer from {base_url}: is it running (make run)? Start again to continue.")
        except APIStatusError as error:
            say(f"The server refused a request: {error.message}")
    return 1


def forget_model_credentials() -> None:
    """Drop every provider setting: the server asks the model, this program never does."""
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "COUNTERFOIL_MODEL_")):
            del os.environ[name]


def say(*texts: str, sep: str = " ") -> None:
    """Print at once, without control characters: a model's text must not steer the terminal."""
    text = sep.join(texts)
    shown = "".join(one if one.isprintable() or one == "\n" else "\ufffd" for one in text)
    sys.stdout.write(f"{shown}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
