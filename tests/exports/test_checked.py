"""Whatever of an export has a digest is checked before anything is stored, and named."""

import re
from collections.abc import Callable, Sequence

import pytest

from tests.cli.looking import look
from tests.exports.support import Pair
from tests.exports.tampering import (
    Change,
    Lines,
    checked,
    flip,
    flip_byte,
    member,
    packed,
    sealed_again,
    twice,
    without,
)
from tests.exports.test_round_trip import long_talk
from tests.support.chat import Chat

# Where the fields of packed records stand.
REPLACEMENT, EFFECTIVE_DIGEST, RECIPE_HEAD, RECIPE_DIGEST = 6, 3, 1, 7

Case = tuple[str, str, Callable[[str], str], str]

TAMPERED: list[Case] = [
    ("ledger.log", "commitment", flip, "does not match its digest"),
    ("ledger.log", "digest", flip, "does not match its digest"),
    ("ledger.log", "sealed_salt", flip, "does not match its commitment"),
    ("ledger.log", "transcript_digest", flip, "does not match its digest"),
    ("ledger.entries", "digest", flip, "is not that of transcript entry 1"),
    ("ledger.rounds", "answer_digest", flip, "is not that of the answer"),
    ("ledger.calls", "answer_digest", flip, "is not that of log position"),
    ("ledger.thread", "head_digest", flip, "another head than the export"),
    ("ledger.session", "log_digest", flip, "not that of the last entry"),
    ("transcript.entry", "commitment", flip, "commitment: changed"),
    ("transcript.entry", "digest", flip, "does not continue the chain"),
    ("transcript.entry", "content_salt", flip, "commitment"),
    ("journal.operation", "request_digest", flip, "is not the digest of the request"),
    ("journal.operation", "answer_digest", flip, "is not the digest of the answer"),
    ("context.part", "body_sealed", flip_byte, "is not the digest of the part"),
    ("context.part", "address", flip, "is not the digest of the part"),
    ("context.transition", "chain_digest", flip, "does not match the chain"),
    ("context.transition", "sealed", packed(REPLACEMENT), "that do not continue"),
    ("context.transition", "id", flip, "is not the one that was recorded there"),
    ("context.checkpoint", "sealed", packed(EFFECTIVE_DIGEST), "checkpoint 1"),
    ("context.checkpoint", "id", flip, "is not the one that was recorded there"),
    ("context.snapshot", "id", flip, "is not the id of the request"),
    ("context.snapshot", "recipe_sealed", packed(RECIPE_HEAD), "has no head"),
    ("context.snapshot", "recipe_sealed", packed(RECIPE_DIGEST), "request"),
    ("files.artifact", "sha256", flip, "is not the digest of the bytes"),
    ("files.artifact", "body", flip_byte, "is not the digest of the bytes"),
    ("files.artifact", "artifact_id", flip, "is not the id of these bytes"),
]

REDACTED: list[Case] = [
    ("ledger.redactions", "seal", flip, "does not match its commitment"),
    ("transcript.redaction", "seal", flip, "content"),
    ("journal.redaction", "sealed", packed(0), "is not the projection that line"),
    ("context.revocation", "transition_id", flip, "was revoked, but nothing"),
    ("context.transition", "chain_digest", flip, "does not match the chain"),
]

MISSING: list[tuple[str, str]] = [
    ("ledger.log", "missing"),
    ("transcript.entry", "do not end with entry"),
    ("journal.outcome", "of which no line has the outcome"),
    ("context.part", "names a part that no line before it holds"),
    ("context.checkpoint", "does not match its digest"),
]


MISSING_REDACTED: list[tuple[str, str]] = [
    ("ledger.redactions", "does not match its commitment"),
    ("transcript.redaction", "content: erased"),
    ("journal.redaction", "of which no line has the outcome"),
    ("context.revocation", "cannot be read"),
]


async def redacted(chat: Chat, kind: str, place: int) -> None:
    said = [event for event in await chat.history() if event["type"] == kind]
    words = ("context", "redact", chat.id, "--event", said[place]["id"], "--reason", "leaked")
    done = await look(chat.system, *words)
    assert done.code == 0, done.err


async def refusal(change: Change, lines: Lines) -> str:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (compared below)
        await checked(sealed_again(change(lines)))
    return str(refused.value)


async def check_all(
    lines: Lines, tampered: Sequence[Case], missing: Sequence[tuple[str, str]]
) -> None:
    await checked(lines)
    for kind, name, other, message in tampered:
        said = await refusal(member(kind, name, other), lines)
        assert message in said, f"{kind}.{name}: {said}"
        assert re.match(r"line \d+, [a-z.]+: ", said), f"{kind}.{name}: {said}"
    for kind, message in missing:
        said = await refusal(without(kind), lines)
        assert message in said, f"without {kind}: {said}"


async def test_whatever_has_a_digest_is_checked_before_anything_is_stored(
    narrow_pair: Pair,
) -> None:
    chat = await long_talk(narrow_pair.source)
    lines = await narrow_pair.export(chat.id)
    await check_all(lines, TAMPERED, MISSING)
    for kind in ("ledger.turns", "ledger.log", "journal.operation", "context.snapshot"):
        said = await refusal(twice(kind), lines)
        assert "a line before has the same" in said
    for kind, place in (("user.custom_tool_result", 0), ("user.message", -1), ("agent.message", 0)):
        await redacted(chat, kind, place)
    await check_all(await narrow_pair.export(chat.id), REDACTED, MISSING_REDACTED)
