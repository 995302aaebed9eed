"""When a copy of a thread's messages is worth a row."""

import pytest

from services.context import keeping
from services.context.cache import Messages, Warm
from services.context.reducer import Use


@pytest.mark.parametrize(
    ("seq", "kept_seq", "size", "is_open", "expected"),
    [
        (127, 0, 1, False, False),
        (128, 0, 1, False, True),
        (2_128, 2_000, 1, False, False),
        (2_250, 2_000, 1, False, False),
        (2_251, 2_000, 1, False, True),
        (2_251, 2_000, 16 * 2**20, False, True),
        (2_251, 2_000, 16 * 2**20 + 1, False, False),
        (2_251, 2_000, 1, True, False),
    ],
)
def test_it_is_kept_anew_when_an_eighth_has_come_behind_it(
    seq: int, kept_seq: int, size: int, *, is_open: bool, expected: bool
) -> None:
    warm = Warm(seq, bytes(32), Messages(bytes(size)))
    warm.kept_seq = kept_seq
    warm.open = (Use(0, "a", b'"a"'),) if is_open else ()
    assert keeping.is_due(warm) is expected
