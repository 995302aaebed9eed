"""The models' windows, and what does not fit: refused in the API's words. Pure but for `Windows`,
which remembers what it was told."""

from collections.abc import Mapping

from offline_model.errors import ApiError, invalid
from offline_model.tokens import Counted, Medium

WINDOW_TOKENS = 200_000
"""The window of a model that nobody gave another one."""

IMAGE_BASE64_MAX = 5 * 1024 * 1024
"""Characters of an image's base64."""
IMAGE_EDGE_MAX = 8000
MANY_IMAGES = 20
"""With more images than that, their edges may only have MANY_EDGE_MAX pixels."""
MANY_EDGE_MAX = 2000
PDF_PAGES_MAX = 100


class Windows:
    """Windows in tokens: one for every model, and others by model."""

    def __init__(self, by_model: Mapping[str, int]) -> None:
        """`by_model` is what the command line says; the window of every model is under ""."""
        self._started = dict(by_model)
        self._by_model = dict(by_model)

    def put(self, model: str, tokens: int) -> None:
        """From now on `model`, or every model without one of its own if it is "", has `tokens`."""
        self._by_model[model] = tokens

    def reset(self) -> None:
        """Back to the command line."""
        self._by_model = dict(self._started)

    def of(self, model: str, scenario: int | None = None) -> int:
        """The window of a model: its own, else its scenario's, else that of every model."""
        own = self._by_model.get(model) if model else None
        return own or scenario or self._by_model.get("", WINDOW_TOKENS)


def check_window(counted: Counted, max_tokens: int, window: int) -> None:
    """Raises ApiError 400 when the input, or the input with the output, is over the window."""
    tokens = counted.input_tokens
    if tokens > window:
        raise too_long(tokens, window)
    if tokens + max_tokens > window:
        raise invalid(
            f"input length and `max_tokens` exceed context limit: {tokens} + {max_tokens} >"
            f" {window}, decrease input length or `max_tokens` and try again"
        )


def too_long(tokens: int, window: int) -> ApiError:
    """The refusal of an input over the window."""
    return invalid(f"prompt is too long: {tokens} tokens > {window} maximum")


def check_media(media: list[Medium]) -> None:
    """Raises ApiError 400 for the first image or document that is too large."""
    images = [one for one in media if one.kind == "image"]
    for image in images:
        _check_image(image, many=len(images) > MANY_IMAGES)
    if sum(one.pages for one in media) > PDF_PAGES_MAX:
        raise invalid(f"A maximum of {PDF_PAGES_MAX} PDF pages may be provided.")


def _check_image(image: Medium, *, many: bool) -> None:
    size, edge = image.encoded_bytes, max(image.width, image.height)
    if size > IMAGE_BASE64_MAX:
        raise invalid(
            f"{image.where}: image exceeds 5 MB maximum: {size} bytes > {IMAGE_BASE64_MAX} bytes"
        )
    if edge > IMAGE_EDGE_MAX:
        raise invalid(
            f"{image.where}.data: At least one of the image dimensions exceed max allowed size:"
            f" {IMAGE_EDGE_MAX} pixels"
        )
    if many and edge > MANY_EDGE_MAX:
        raise invalid(
            f"{image.where}.data: At least one of the image dimensions exceed max allowed size for"
            f" many-image requests: {MANY_EDGE_MAX} pixels"
        )
