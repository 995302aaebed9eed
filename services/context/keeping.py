"""When a copy of a thread's messages is worth a row; see `prefixes`. Pure."""

from services.context.cache import Warm

ENTRIES_MIN = 128
"""So many entries are read about as fast as a row."""

BYTES_MAX = 16 * 2**20
"""Sealing and opening hold up everything else in the process, for about 1 ms a megabyte."""


def is_due(warm: Warm) -> bool:
    """Whether the entries behind what is kept are worth a new row: an eighth of it.

    So all rows that a growing thread ever writes hold nine times its bytes, at most.
    """
    behind = warm.seq - warm.kept_seq
    long_enough = behind >= ENTRIES_MIN and behind * 8 > warm.kept_seq
    return long_enough and warm.size <= BYTES_MAX and not warm.open
