"""What fits a window, and how large windows are. Pure."""

import pytest

from services.context.admission import (
    REQUEST_BYTES_MAX,
    Anchor,
    Limits,
    Size,
    fits,
    has_room,
    limits_of,
    size_of,
)
from services.context.catalog import Model, lookup
from services.context.estimates import text_tokens


@pytest.mark.parametrize(("size", "tokens"), [(0, 0), (1, 1), (3, 1), (4, 2), (299_999, 100_000)])
def test_an_estimate_is_a_third_of_the_bytes_rounded_up(size: int, tokens: int) -> None:
    assert text_tokens(size) == tokens


def test_output_and_one_growth_round_are_reserved() -> None:
    limits = limits_of(Model(200_000, 32_000))
    assert limits == Limits(200_000, 32_000, 47_000)
    assert limits.input_tokens_limit == 121_000


def test_a_small_window_leaves_half_for_the_input() -> None:
    assert limits_of(Model(8_000, 32_000)) == Limits(8_000, 2_000, 2_000)


def test_the_limit_itself_fits_and_one_more_does_not() -> None:
    limits = limits_of(Model(200_000, 8_192))
    for edge, allows in (
        (limits.input_tokens_limit, has_room),
        (limits.input_tokens_max, fits),
    ):
        assert allows(Size(edge, "estimate"), 1, limits)
        assert not allows(Size(edge + 1, "estimate"), 1, limits)
        assert not allows(Size(1, "estimate"), REQUEST_BYTES_MAX + 1, limits)


@pytest.mark.parametrize(
    ("anchor", "expected"),
    [
        (None, Size(1_000 + 5_000, "estimate")),
        # 4,000 of the 5,000 were measured as 7,000 with everything in front of them.
        (Anchor("snap_1", 7_000, 4_000), Size(8_000, "anchor", "snap_1", 7_000)),
        (Anchor("snap_1", 300, 4_000), Size(6_000, "estimate")),
    ],
)
def test_a_credible_measure_replaces_the_estimate_of_what_it_measured(
    anchor: Anchor | None, expected: Size
) -> None:
    assert size_of(3_000, 12_000, 1_000, anchor) == expected


def test_the_deployments_word_for_a_window_counts_more_than_the_catalog() -> None:
    assert lookup("claude-3-haiku-20240307", 9_000) == Model(9_000, 4_096)


@pytest.mark.parametrize(
    ("model", "window", "output"),
    [
        ("claude-opus-4-8", 1_000_000, 32_000),
        ("claude-sonnet-4-5-20250929", 200_000, 32_000),
        ("claude-3-haiku-20240307", 200_000, 4_096),
        ("claude-3-5-haiku-latest", 200_000, 8_192),
        ("claude-of-the-future", 100_000, 32_000),
        ("somebody/else", 100_000, 8_192),
        ("gpt-5", 400_000, 8_192),
        ("offline", 200_000, 8_192),
        ("offline/seven-calls", 200_000, 8_192),
        ("offline-model", 200_000, 8_192),
        ("offliner", 100_000, 8_192),
    ],
)
def test_windows_come_from_the_catalog_and_unknown_ids_are_small(
    model: str, window: int, output: int
) -> None:
    assert lookup(model) == Model(window, output)
