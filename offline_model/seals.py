"""Ids and seals that need no memory: both are functions of their input and a fixed key.

The key is a constant on purpose: after a restart the process still knows what it issued.
"""

import base64
import hashlib
import hmac

_KEY = b"offline model: proves where a block came from, protects nothing"
_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def token(*parts: bytes | str | int, length: int = 22) -> str:
    """A deterministic base58 token of ``length`` characters."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    number = int.from_bytes(digest.digest(), "big")
    out: list[str] = []
    for _ in range(length):
        number, rest = divmod(number, 58)
        out.append(_ALPHABET[rest])
    return "".join(out)


def signature(thinking: str) -> str:
    """The signature of a thinking text (base64)."""
    return base64.b64encode(b"\x12\x48\x0a" + _mac("thinking", thinking)).decode()


def signature_valid(thinking: str, given: str) -> bool:
    """Whether ``given`` was issued for exactly this thinking text."""
    return hmac.compare_digest(signature(thinking).encode(), given.encode())


def sealed(kind: str, text: str) -> str:
    """An opaque value (redacted thinking, encrypted search content) bound to ``text``."""
    mac = base64.urlsafe_b64encode(_mac(kind, text)).decode().rstrip("=")
    payload = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    return f"{_PREFIX[kind]}{mac}{payload}"


def sealed_valid(kind: str, given: str) -> bool:
    """False only for a value that claims to be ours and was changed.

    Values that a script spelled out carry no seal, so nothing can be said about them.
    """
    prefix = _PREFIX[kind]
    if not given.startswith(prefix):
        return True
    payload = given[len(prefix) + 43 :]
    try:
        text = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)).decode()
    except ValueError:
        return False
    return hmac.compare_digest(sealed(kind, text).encode(), given.encode())


_PREFIX = {"redacted_thinking": "EroB", "web_search_result": "EqgC"}


def _mac(kind: str, text: str) -> bytes:
    return hmac.digest(_KEY, f"{kind}\0{text}".encode(), "sha256")
