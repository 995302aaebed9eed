"""How much an exchange may take. Pure data."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one exchange with a host. Each must fit its caller; the defaults fit a page."""

    connect_seconds: float = 10.0
    """For the name, the connection and TLS together, and once more for a free connection."""
    idle_seconds: float = 15.0
    """Longest silence while something is awaited."""
    total_seconds: float | None = 60.0
    """From the beginning to the last byte, over all redirects; None for streams that stay open."""
    wire_bytes: int = 16 * MIB
    """Bytes that come over the network for one answer, headers apart."""
    body_bytes: int = 16 * MIB
    """Bytes of the body after decompression."""
    header_bytes: int = 128 * 1024
    """Bytes of status lines and headers, framing of chunks included."""
    expansion_max: int = 100
    """How many times larger than its compressed form a body may be, from its first MiB on."""
    redirects_max: int = 5
    media_types: tuple[str, ...] = ()
    """Types that a successful answer may have: `text/html`, or `text/*`; () for any or none."""
