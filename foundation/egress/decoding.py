"""Decompression that cannot be made to fill memory. Pure."""

import zlib
from collections.abc import Generator
from typing import Protocol

from foundation.egress.errors import EgressError, Reason
from foundation.egress.limits import MIB, Limits

ACCEPT_ENCODING = "gzip, deflate"
"""What we ask for: both are of zlib, which decompresses in steps of a bounded size."""

_STEP_BYTES = 256 * 1024
_GZIP = 16 + zlib.MAX_WBITS
_GZIP_MAGIC = b"\x1f\x8b"


class _Inflater(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Decoder:
    """Takes the bytes of a body as they come and gives its content, counting both.

    Raises EgressError as soon as a bound of `limits` is passed: at most 256 KiB too much have been
    made then.
    """

    def __init__(self, encoding: str, limits: Limits, host: str) -> None:
        """`encoding` is the Content-Encoding of the answer. Raises EgressError for one that we
        did not ask for, and for several on top of each other."""
        name = encoding.strip().lower()
        if name not in ("", "identity", "gzip", "x-gzip", "deflate"):
            message = "the answer is compressed in a way that was not asked for"
            raise EgressError(Reason.COMPRESSION, host, message)
        self._limits = limits
        self._host = host
        self._is_gzip = name.endswith("gzip")
        self._inner = _inflater(self._is_gzip) if name not in ("", "identity") else None
        self._taken = 0
        self._given = 0

    def feed(self, chunk: bytes) -> Generator[bytes]:
        """The content that these bytes complete, in pieces."""
        first = self._taken == 0
        self._taken += len(chunk)
        if self._inner is None:
            yield self._counted(chunk)
            return
        if first and not self._is_gzip and chunk and not _is_zlib(chunk):
            self._inner = zlib.decompressobj(-zlib.MAX_WBITS)  # what some servers call deflate
        piece, rest = b"", chunk
        while rest or len(piece) == _STEP_BYTES:
            piece, rest = self._step(rest)
            if piece:
                yield self._counted(piece)

    def _step(self, data: bytes) -> tuple[bytes, bytes]:
        """The next piece, and what is still to be decompressed."""
        assert self._inner is not None
        if self._inner.eof:
            if not (self._is_gzip and data.startswith(_GZIP_MAGIC)):
                return b"", b""  # what follows the end has no meaning
            self._inner = _inflater(is_gzip=True)
        try:
            piece = self._inner.decompress(data, _STEP_BYTES)
        except zlib.error:
            message = "the answer's compressed body is damaged"
            raise EgressError(Reason.COMPRESSION, self._host, message) from None
        return piece, self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail

    def end(self) -> None:
        """Says that no more bytes come. Raises EgressError for a body that is not complete."""
        if self._inner is not None and self._taken and not self._inner.eof:
            message = "the answer's compressed body is cut off"
            raise EgressError(Reason.COMPRESSION, self._host, message)

    def _counted(self, piece: bytes) -> bytes:
        self._given += len(piece)
        limits = self._limits
        if self._given > limits.body_bytes:
            raise too_large(self._host, limits.body_bytes)
        if self._given > max(MIB, limits.expansion_max * self._taken) and self._inner is not None:
            message = f"the answer's body expands more than {limits.expansion_max} times"
            raise EgressError(Reason.COMPRESSION, self._host, message)
        return piece


def too_large(host: str, limit: int) -> EgressError:
    """The error of an answer with more bytes than its caller takes."""
    size = f"{limit // MIB} MiB" if limit >= MIB else f"{limit} bytes"
    return EgressError(Reason.TOO_LARGE, host, f"the answer is larger than {size}")


def _inflater(is_gzip: bool) -> _Inflater:
    return zlib.decompressobj(_GZIP if is_gzip else zlib.MAX_WBITS)


def _is_zlib(chunk: bytes) -> bool:
    """Tell whether a zlib header (RFC 1950) begins here, as far as these bytes tell."""
    if chunk[0] & 0x0F != 8:
        return False
    return len(chunk) == 1 or (chunk[0] << 8 | chunk[1]) % 31 == 0
