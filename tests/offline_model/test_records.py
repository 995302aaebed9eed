"""Requests are kept byte for byte, and the reused prefix is measured."""

import hashlib
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from offline_model.records import Prefixes, common_prefix
from tests.offline_model.support import Server, assistant, request, running, script


def test_bodies_are_exact_and_credentials_are_not_kept(tmp_path: Path) -> None:
    body = b' {"model":"m",\n"max_tokens":1, "messages":[{"role":"user","content":"\\u00e9"}]}\n'
    with running(tmp_path) as server:
        assert server.raw(body).status_code == 200
        assert server.raw(b"{").status_code == 400
        records = server.get("/control/requests?wait=2&finished=1")["requests"]
        stored = server.http.get("/control/requests/1").content
        assert server.http.get("/control/requests/9").status_code == 404
    assert stored == body == (tmp_path / "1.json").read_bytes()
    index = [json.loads(line) for line in (tmp_path / "index.jsonl").read_text().splitlines()]
    assert index == records
    first = index[0]
    assert first["sha256"] == hashlib.sha256(body).hexdigest()
    assert (first["model"], first["disposition"], first["status"]) == ("m", "answered", 200)
    assert first["headers"]["anthropic-version"] == "2023-06-01"
    assert not {"x-api-key", "authorization"} & first["headers"].keys()
    assert (index[1]["status"], index[1]["disposition"]) == (400, "answered")


def test_without_a_folder_bodies_are_kept_in_memory() -> None:
    with running() as server:
        body = json.dumps(request("x")).encode()
        server.raw(body)
        assert server.http.get("/control/requests/1").content == body
        server.post("/control/reset")
        assert server.get("/control/requests")["requests"] == []


def test_the_reused_prefix_is_reported_to_who_asks_for_caching(server: Server) -> None:
    server.post("/control/reset")
    start = script("one", "two")
    caching: dict[str, Any] = {"cache_control": {"type": "ephemeral"}, "system": "a system"}

    def usage(*messages: Any, **more: Any) -> Any:
        return server.say(*messages, **more)["usage"]

    first = usage(start, **caching)
    assert first["cache_read_input_tokens"] == 0
    assert first["cache_creation_input_tokens"] > 0
    shared = len(json.dumps([request(start)["messages"][0]]).encode()) - 1
    more = [start, assistant("one"), "go on"]
    second = usage(*more, **caching)
    assert second["cache_read_input_tokens"] == shared // 4
    records = server.get("/control/requests")["requests"]
    assert records[1]["prefix_bytes"] == shared
    assert records[1]["prefix_seq"] == records[0]["seq"]
    assert usage(*more, system="a system")["cache_read_input_tokens"] == 0
    other = usage(*more, **{**caching, "system": "another"})
    assert other["cache_read_input_tokens"] == 0


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_common_prefix_is_what_it_says(a: bytes, b: bytes) -> None:
    naive = 0
    while naive < min(len(a), len(b)) and a[naive] == b[naive]:
        naive += 1
    assert common_prefix(a, b) == naive


@given(st.lists(st.text("ab", max_size=6), max_size=12))
def test_a_neighbour_is_enough_to_find_the_longest_prefix(texts: list[str]) -> None:
    prefixes = Prefixes()
    seen: list[bytes] = []
    for seq, text in enumerate(texts):
        region = text.encode() + b"]"
        found, _ = prefixes.add(b"g", region, seq)
        best = max((common_prefix(region, other) for other in seen), default=0)
        # A region that another one continues is dropped, which costs its closing bracket.
        assert best - 1 <= found <= best
        seen.append(region)
