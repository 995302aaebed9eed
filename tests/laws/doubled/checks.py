"""What must hold when all is quiet: the last part of the model's `check`, for the real thing."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import session_pb2
from counterfoil.transcript.v1 import transcript_pb2
from counterfoil.types.v1 import mapping_pb2

from cli.crosscheck import contradictions
from foundation.outcomes import DENIED_TEXT, MAY_HAVE_RUN_TEXT, NOT_RUN_TEXT
from tests.laws.doubled import public_log
from tests.laws.doubled.client import Client
from tests.laws.doubled.evidence import Evidence, Json, Result, shown, text_of
from tests.laws.doubled.network import Net
from tests.laws.doubled.provider import ASK, Provider

_AGENT_EVENTS = ("agent.message", "agent.tool_use", "agent.custom_tool_use")
_TOOL_CALL = journal_pb2.OPERATION_KIND_TOOL_CALL
_MODEL_CALL = journal_pb2.OPERATION_KIND_MODEL_CALL
_ENDED = (
    journal_pb2.OPERATION_STATE_COMPLETED,
    journal_pb2.OPERATION_STATE_AMBIGUOUS,
    journal_pb2.OPERATION_STATE_ABANDONED,
)
_PREVIEW = re.compile(r"(t(e(x(t( \d*)?)?)?)?)?")


@dataclass(frozen=True)
class Case:
    """One example at its end. `may_be_lost`: its turns may have been taken out (quarantine)."""

    found: Evidence
    client: Client
    provider: Provider
    net: Net
    executions: dict[str, int]
    may_be_lost: bool

    def complaints(self) -> Iterator[str]:
        """Everything that does not hold."""
        yield from self._chains()
        yield from self._inputs()
        yield from self._answers()
        yield from self._results()
        yield from self._requests()
        yield from self._executions()
        yield from self._ends()
        yield from self._previews()
        yield from self._summaries()
        yield from self._status()
        yield from public_log.complaints(self.found.log)

    @cached_property
    def was_lost(self) -> bool:
        """A turn was taken out, and may have been."""
        lost = any(event["type"] == "session.error" for event in self.found.listed)
        return lost and self.may_be_lost

    @cached_property
    def skipped(self) -> set[str]:
        """Entries that were taken out of the history."""
        entries = self.found.of_kind("WITHHELD")
        return {id for entry in entries for id in entry.content.skipped_entry_ids}

    @cached_property
    def answers(self) -> list[transcript_pb2.Entry]:
        """Answers that count."""
        return [entry for entry in self.found.of_kind("ANSWER") if entry.id not in self.skipped]

    @cached_property
    def uses(self) -> dict[str, mapping_pb2.ToolCallMapping]:
        """Names of all calls, by operation."""
        return {m.operation_id: m for entry in self.answers for m in entry.content.mappings}

    @cached_property
    def public(self) -> dict[str, Result]:
        """Public results by use id."""
        return self.found.public_results()

    def _chains(self) -> Iterator[str]:
        """Both chains hold and vouch for each other."""
        found = self.found
        for finding in (*found.log_verified.findings, *found.transcript_verified.findings):
            yield f"verification: {finding.seq}: {finding.message}"
        yield from contradictions(found.log_verified, found.transcript_verified)
        ids = Counter(event["id"] for event in found.listed)
        yield from (f"event {id} is listed {n} times" for id, n in ids.items() if n > 1)

    def _inputs(self) -> Iterator[str]:
        """Every input once and in order, in both histories; nothing was taken out."""
        sent = self.client.messages
        stored = [
            text_of([json.loads(block) for block in entry.content.blocks])
            for entry in self.found.of_kind("INPUT")
        ]
        if stored != sent:
            yield f"inputs in the transcript: {stored}, sent: {sent}"
        public = [text_of(e["content"]) for e in self.found.listed if e["type"] == "user.message"]
        if public != sent:
            yield f"inputs in public: {public}, sent: {sent}"
        if self.found.of_kind("ABANDONED"):
            yield f"the transcript has ABANDONED entries: {self._shape()}"
        if self.skipped and not self.was_lost:
            yield f"the transcript has WITHHELD entries: {self._shape()}"

    def _answers(self) -> Iterator[str]:
        """Answers of the transcript and public rounds are the same, in the same order."""
        stored = [part for entry in self.answers for part in _parts(entry)]
        listed = self.found.listed
        public = [_public_part(event) for event in listed if event["type"] in _AGENT_EVENTS]
        if stored != public:
            yield f"answers in the transcript: {stored}, in public: {public}"

    def _results(self) -> Iterator[str]:
        """Each call has one public result; model, journal and public are told the same."""
        known = {mapping.event_id for mapping in self.uses.values()}
        yield from (f"{use} has a result, but is no call" for use in self.public.keys() - known)
        yield from (f"{use} has no public result" for use in known - self.public.keys())
        referenced: list[str] = []
        for entry in self.found.of_kind("RESULTS"):
            if entry.id in self.skipped:
                continue
            for reference in entry.content.results:
                referenced.append(reference.operation_id)
                yield from self._result(reference)
        if sorted(referenced) != sorted(self.uses):
            yield f"results reference {sorted(referenced)}, calls are {sorted(self.uses)}"
        for use_id, said in self.client.answered.items():
            got = self.public.get(use_id)
            if said not in ("allow", "deny") and (got is None or got.text != said):
                yield f"{use_id} was answered {said!r}, and {got} is public"

    def _result(self, reference: transcript_pb2.ResultReference) -> Iterator[str]:
        operation = self.found.operations.get(reference.operation_id)
        if operation is None or reference.operation_id not in self.uses:
            yield f"{reference.operation_id} is referenced and unknown"
            return
        if operation.projection.digest != reference.projection_digest:
            yield f"{operation.id}: the journal holds another result than the transcript"
        use_id = self.uses[operation.id].event_id
        public = self.public.get(use_id)
        if operation.projection.body and not self._agree(public, shown(operation)):
            yield f"{use_id}: model {shown(operation)}, public {public}"

    def _agree(self, public: Result | None, told: Result) -> bool:
        """The public learns of a lost turn's calls before its last owner: that they may have run,
        or that they did not, which the model may be told in other words."""
        if public is not None and self.was_lost:
            if public.text == MAY_HAVE_RUN_TEXT:
                return True
            if _says_not_run(public.text) and _says_not_run(told.text):
                return True
        return public == told

    def _requests(self) -> Iterator[str]:
        """No request said anything else of a call than the public was told in the end."""
        uses = {m.provider_tool_use_id: m.event_id for m in self.uses.values()}
        for messages in self.provider.bodies:
            for block in (block for message in messages for block in message["content"]):
                if block["type"] != "tool_result":
                    continue
                told = Result(text_of(block["content"]), bool(block.get("is_error")))
                public = self.public.get(uses.get(block["tool_use_id"], ""))
                if not self._agree(public, told):
                    yield f"a request said {told} of {block['tool_use_id']}, public is {public}"

    def _executions(self) -> Iterator[str]:
        """Nothing ran twice, without leave, or is reported as not run although it ran."""
        for operation_id, times in self.executions.items():
            if times > 1:
                yield f"{operation_id} was executed {times} times"
            operation = self.found.operations.get(operation_id)
            mapping = self.uses.get(operation_id)
            if operation is None or mapping is None:
                yield f"{operation_id} was executed and is no call"
                continue
            public = self.public.get(mapping.event_id)
            for told in (public, shown(operation)):
                if told is not None and _says_not_run(told.text):
                    yield f"{operation_id} was executed, and is reported: {told.text}"
            if operation.tool_name == ASK and self.client.answered.get(mapping.event_id) != "allow":
                yield f"{operation_id} was executed without leave"

    def _ends(self) -> Iterator[str]:
        """Calls have an end, and only what ran says that it did; so have provider calls of turns
        that are over, but for the last turn's."""
        last = self.found.of_kind("INPUT")[-1].turn_id
        for operation in self.found.operations.values():
            is_over = operation.state in _ENDED
            if operation.kind == _MODEL_CALL:
                if operation.turn_id != last and not is_over:
                    yield f"provider call {operation.id} of an older turn has no end"
            elif not is_over:
                yield f"{operation.id} has no end: {operation.state}"
            elif operation.id not in self.executions and " ran " in shown(operation).text:
                yield f"{operation.id} never ran, and is reported: {shown(operation)}"

    def _previews(self) -> Iterator[str]:
        """No preview id carries two texts, or another text than the event has in the end."""
        texts: dict[str, str] = {}
        for preview in self.net.previews:
            texts[preview.event_id] = texts.get(preview.event_id, "") + preview.text
        public = {event["id"]: event for event in self.found.listed}
        for event_id, text in texts.items():
            if not _PREVIEW.fullmatch(text):
                yield f"the preview of {event_id} has two texts: {text!r}"
            elif event_id in public and not text_of(public[event_id]["content"]).startswith(text):
                yield f"the preview of {event_id} was {text!r}, and {public[event_id]} came"

    def _summaries(self) -> Iterator[str]:
        """Whatever the provider refused, clients learn of each summary once, and of none else."""
        kind = "agent.thread_context_compacted"
        told = [event["id"] for event in self.found.listed if event["type"] == kind]
        if told != self.found.summaries:
            yield f"summaries {told} are public, requests began with {self.found.summaries}"

    def _status(self) -> Iterator[str]:
        """The session waits, nothing failed, and tokens count once, with the end of their span."""
        found = self.found
        if found.session.status != session_pb2.SESSION_STATUS_IDLE:
            yield "the session runs at the end"
        for event in found.listed:
            if event["type"] == "session.error" and not self.was_lost:
                yield f"the session reports {event['error']}"
        ends = [e["model_usage"] for e in found.listed if e["type"] == "span.model_request_end"]
        for name in ("input_tokens", "output_tokens", "cache_read_input_tokens"):
            counted, said = sum(end[name] for end in ends), getattr(found.session.usage, name)
            if counted != said:
                yield f"spans count {counted} {name}, the session {said}"

    def _shape(self) -> list[str]:
        return [f"{e.seq}:{e.kind}:{e.turn_id[-6:]}:{e.round}" for e in self.found.entries]


def _parts(entry: transcript_pb2.Entry) -> Iterator[tuple[Any, ...]]:
    """The public parts of a stored answer."""
    names = {mapping.block_index: mapping.event_id for mapping in entry.content.mappings}
    for index, raw in enumerate(entry.content.blocks):
        block = json.loads(raw)
        if block["type"] == "text":
            yield "text", block["text"]
        else:
            yield "use", names.get(index), block["name"], json.dumps(block["input"])


def _public_part(event: Json) -> tuple[Any, ...]:
    if event["type"] == "agent.message":
        return "text", text_of(event["content"])
    return "use", event["id"], event["name"], json.dumps(event["input"])


def _says_not_run(text: str) -> bool:
    return text == NOT_RUN_TEXT or text.startswith(DENIED_TEXT) or "not run" in text
