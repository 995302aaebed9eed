"""The default behaviour for the expense gate: clear receipts are decided, doubtful ones escalated.

Pure. It reads receipts out of free text, because a demo that only works with one exact wording
would not show anything.
"""

import re
from itertools import pairwise

import msgspec
from msgspec import Struct

_ID = re.compile(r"\b(?:r|rcpt|receipt)[-_ ]?\d+\b", re.IGNORECASE)
_CURRENCY = r"USD|EUR|GBP|CHF|\$|€|£"
_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_AMOUNT = re.compile(rf"({_CURRENCY})\s*({_NUMBER})|({_NUMBER})\s*({_CURRENCY})")
_DOUBT = {
    "missing": 3,
    "no receipt": 3,
    "without": 2,
    "no itemi": 3,
    "not itemi": 3,
    "unitemi": 3,
    "unclear": 3,
    "ambiguous": 3,
    "illegible": 3,
    "handwritten": 2,
    "unknown": 2,
    "personal": 2,
    "alcohol": 2,
    "entertainment": 1,
    "no attendee": 2,
    "not stated": 2,
    "misc": 1,
    "?": 1,
}
AMOUNT_LARGE = 500.0


class Receipt(Struct):
    """``doubt`` counts reasons to ask; ``amount`` is as written, ``""`` when there is none."""

    id: str
    text: str
    amount: str
    doubt: int


class Outcome(Struct):
    """A recorded answer to one of our calls."""

    tool: str
    receipt_id: str
    text: str
    is_error: bool


def receipts(text: str) -> list[Receipt]:
    """The receipts named in ``text``, in order, each once."""
    found: dict[str, Receipt] = {}
    for segment in _segments(text):
        match = _ID.search(segment)
        if match and match.group().lower() not in found:
            found[match.group().lower()] = _receipt(match.group(), segment)
    return list(found.values())


def _segments(text: str) -> list[str]:
    """Text cut before each id: at its line's start where the line has one id only."""
    cuts: list[int] = []
    for line in re.finditer(r"[^\n]+", text):
        ids = list(_ID.finditer(line.group()))
        distinct = {match.group().lower() for match in ids}
        if len(distinct) == 1:
            cuts.append(line.start())
        else:
            cuts.extend(line.start() + match.start() for match in ids)
    return [text[start:end] for start, end in pairwise([*cuts, len(text)])]


def _receipt(id: str, segment: str) -> Receipt:
    match = _AMOUNT.search(segment)
    amount, value = "", 0.0
    if match:
        currency, number = match.group(1) or match.group(4), match.group(2) or match.group(3)
        value = float(number.replace(",", ""))
        amount = f"{currency}{number}" if len(currency) == 1 else f"{currency} {number}"
    lowered = segment.lower()
    doubt = sum(weight for word, weight in _DOUBT.items() if word in lowered)
    return Receipt(id, segment.strip(), amount, doubt + (2 if value >= AMOUNT_LARGE else 0))


def calls(found: list[Receipt]) -> list[tuple[str, bytes]]:
    """(tool, exact input) for each receipt: at least one escalation among two or more."""
    most = max((receipt.doubt for receipt in found), default=0)
    least = min((receipt.doubt for receipt in found), default=0)
    out: list[tuple[str, bytes]] = []
    for index, receipt in enumerate(found):
        if most == least and len(found) > 1:
            doubtful = index == len(found) - 1
        else:
            doubtful = receipt.doubt >= 2 and (receipt.doubt > least or len(found) == 1)
            doubtful = doubtful or (len(found) > 1 and receipt.doubt == most)
        out.append(_escalate(receipt) if doubtful else _decide(receipt))
    return out


def _decide(receipt: Receipt) -> tuple[str, bytes]:
    reason = f"{receipt.amount or 'The amount'} is small and the purpose is documented."
    value = {"receipt_id": receipt.id, "action": "approve", "reason": reason}
    return "decide", msgspec.json.encode(value)


def _escalate(receipt: Receipt) -> tuple[str, bytes]:
    what = f"This {receipt.amount} expense" if receipt.amount else "This expense"
    question = f"{what} is not clear from the receipt; can an itemized receipt be provided?"
    return "escalate", msgspec.json.encode({"receipt_id": receipt.id, "question": question})


def summary(outcomes: list[Outcome]) -> str:
    """The final answer; quotes what was recorded, word by word where it is not understood."""
    lines = [f"Receipt {one.receipt_id or '(unnamed)'}: {_verdict(one)}" for one in outcomes]
    return "\n".join(["Summary of recorded outcomes:", *lines])


def _verdict(outcome: Outcome) -> str:
    if outcome.is_error:
        return f"Not recorded: {outcome.text}"
    try:
        told = msgspec.json.decode(outcome.text.encode(), type=dict[str, object])
    except msgspec.DecodeError:
        return outcome.text
    for member, suffix in (("human_decision", " (after human review)"), ("decision", "")):
        if told.get(member) in ("approve", "reject"):
            verdict = "Approved" if told[member] == "approve" else "Rejected"
            return f"{verdict}{suffix}. Recorded: {outcome.text}"
    return outcome.text
