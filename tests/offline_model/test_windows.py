"""A model's window is enforced, and what does not fit is refused in the API's words."""

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.offline_model.pictures import document, image, jpeg, pdf, png
from tests.offline_model.support import (
    MODEL,
    ROOT,
    Server,
    assistant,
    request,
    result,
    running,
    script,
    use,
    user,
)


@pytest.fixture(autouse=True)
def as_started(server: Server) -> Generator[None]:
    yield
    server.post("/control/reset")


def refused(server: Server, *messages: Any, **more: Any) -> str:
    response = server.raw(json.dumps(request(*messages, **more)).encode())
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error"), response.text
    return error["message"]


def tokens_of(server: Server, *messages: Any) -> int:
    body = json.dumps(request(*messages)).encode()
    return server.raw(body, "/v1/messages/count_tokens").json()["input_tokens"]


def test_every_model_has_a_window_from_the_start(server: Server) -> None:
    assert server.get("/control/window")["window_tokens"] == 200_000
    long = "x" * 800_100
    tokens = tokens_of(server, long)
    assert tokens > 200_000
    assert refused(server, long) == f"prompt is too long: {tokens} tokens > 200000 maximum"


def test_the_output_shares_the_window(server: Server) -> None:
    tokens = tokens_of(server, "hello")
    server.post(f"/control/window?tokens={tokens + 50}")
    assert refused(server, "hello", max_tokens=51) == (
        f"input length and `max_tokens` exceed context limit: {tokens} + 51 > {tokens + 50},"
        " decrease input length or `max_tokens` and try again"
    )
    assert server.say("hello", max_tokens=50)["role"] == "assistant"
    server.post(f"/control/window?tokens={tokens - 1}")
    expected = f"prompt is too long: {tokens} tokens > {tokens - 1} maximum"
    assert refused(server, "hello", max_tokens=50) == expected


def test_counting_has_no_window(server: Server) -> None:
    server.post("/control/window?tokens=1")
    assert tokens_of(server, "hello") > 1


def test_a_models_own_window_counts_first_and_a_reset_forgets(server: Server) -> None:
    assert server.scenarios
    (server.scenarios / "wide.json").write_text('{"window_tokens": 300, "steps": ["one"]}')
    window = "/control/window"
    assert refused(server, "x" * 2000, model="offline/wide").endswith("> 300 maximum")
    # Behind the last step the scenario's window still counts.
    more = ["a", assistant("one"), "x" * 2000]
    assert refused(server, *more, model="offline/wide").endswith("> 300 maximum")
    server.post(f"{window}?tokens=400")
    assert refused(server, "x" * 2000).endswith("> 400 maximum")
    assert refused(server, "x" * 2000, model="offline/wide").endswith("> 300 maximum")
    server.post(f"{window}?tokens=500&model=offline/wide")
    assert server.get(f"{window}?model=offline/wide")["window_tokens"] == 500
    assert refused(server, "x" * 3000, model="offline/wide").endswith("> 500 maximum")
    step = script({"content": ["a"], "window_tokens": 200})
    assert refused(server, step, "x" * 2000, model="offline/wide").endswith("> 200 maximum")
    server.post("/control/reset")
    assert server.say("x" * 2000)["role"] == "assistant"


def test_a_window_is_a_number(server: Server) -> None:
    for tokens in ("", "0", "-1", "many"):
        assert server.http.post(f"/control/window?tokens={tokens}").status_code == 400


def test_windows_come_with_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "offline_model", "--window", "0"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, timeout=30).returncode == 2
    with running(tmp_path, windows=["5000", f"{MODEL}=600"]) as started:
        assert started.get("/control/window")["window_tokens"] == 5000
        assert refused(started, "x" * 4000).endswith("> 600 maximum")
        assert refused(started, "x" * 40_000, model="other").endswith("> 5000 maximum")


def test_a_refused_request_waits_at_no_gate(server: Server) -> None:
    step = script({"content": ["never"], "hold": "no-gate", "window_tokens": 2})
    assert refused(server, step).endswith("> 2 maximum")


def test_an_image_may_have_5_mb_of_base64(server: Server) -> None:
    fits = image(jpeg(9, 9) + bytes(3_932_160 - len(jpeg(9, 9))), "image/jpeg")
    assert len(fits["source"]["data"]) == 5_242_880
    assert server.say(user([fits]))["role"] == "assistant"
    over = image(jpeg(9, 9) + bytes(3_932_160), "image/jpeg")
    size = len(over["source"]["data"])
    where = "messages.2.content.0.tool_result.content.0.image.source.base64"
    history = [assistant([use("a")]), user([result("a", [over])])]
    expected = f"{where}: image exceeds 5 MB maximum: {size} bytes > 5242880 bytes"
    assert refused(server, "go", *history) == expected
    body = json.dumps(request("go", *history)).encode()
    assert server.raw(body, "/v1/messages/count_tokens").status_code == 400


def test_an_image_may_have_8000_pixels_and_many_only_2000(server: Server) -> None:
    path = "messages.0.content.{}.image.source.base64.data: At least one of the image dimensions"
    assert server.say(user([image(png(8000, 1))]))["role"] == "assistant"
    assert refused(server, user([image(png(1, 8001))])) == (
        path.format(0) + " exceed max allowed size: 8000 pixels"
    )
    twenty = [image(png(2001, 1))] * 20
    assert server.say(user(twenty))["role"] == "assistant"
    assert refused(server, user([image(png(1, 1)), *twenty])) == (
        path.format(1) + " exceed max allowed size for many-image requests: 2000 pixels"
    )


def test_documents_may_have_100_pages(server: Server) -> None:
    server.post("/control/window?tokens=1000000")
    assert server.say(user([document(pdf(50)), document(pdf(50))]))["role"] == "assistant"
    blocks = [document(pdf(50)), document(pdf(51))]
    assert refused(server, user(blocks)) == "A maximum of 100 PDF pages may be provided."


def test_a_body_may_have_32_mb(server: Server) -> None:
    body = json.dumps(request("x" * (32 * 1024 * 1024))).encode()
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        response = server.raw(body, path)
        assert response.status_code == 413
        assert response.json()["error"] == {
            "type": "request_too_large",
            "message": "Request exceeds the maximum size",
        }


def test_the_sdk_reads_the_refusal(server: Server) -> None:
    server.post("/control/window?tokens=10")
    with pytest.raises(anthropic.BadRequestError) as caught:
        server.sdk.messages.create(
            model=MODEL, max_tokens=1, messages=[{"role": "user", "content": "x" * 400}]
        )
    assert caught.value.type == "invalid_request_error"
    assert "prompt is too long: " in str(caught.value)
