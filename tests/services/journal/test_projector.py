"""The projector is total, deterministic and bounded, and keeps what it can show."""

import base64
import hashlib
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation import artifacts, digests, projections
from foundation.artifacts import IMAGE_BYTES_MAX
from foundation.canonical import encode
from offline_model import windows
from services.journal import projector
from services.journal.projection import (
    BODY_BYTES_MAX,
    Plan,
    bounded,
    may_have_run,
    not_run,
)
from services.journal.projector import PARTS_MAX, TEXT_CHARS_MAX, Policy, deny
from tests.services.journal.pictures import (
    POLICY,
    WITHOUT_STORE,
    gif,
    image,
    jpeg,
    outcome,
    png,
    text,
    webp,
)

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)
TEXT = st.fixed_dictionaries({"type": st.just("text"), "text": st.text()}, optional={"more": JSON})
LONG_TEXT = st.builds(
    lambda t, n: text(t * n), st.text(min_size=1, max_size=9), st.integers(0, 30_000)
)
SOURCE = st.fixed_dictionaries(
    {"type": st.sampled_from(("base64", "url", "file", "text", "odd"))},
    optional={"data": JSON | st.text("AB+/=", max_size=9), "url": st.text()},
)
IMAGE = st.builds(
    lambda make, w, h: image(make(w, h)),
    st.sampled_from((png, gif, jpeg)),
    st.integers(0, 3000),
    st.integers(0, 3000),
)
ODD = st.fixed_dictionaries(
    {"type": st.sampled_from(("text", "image", "document", "search_result", "x"))},
    optional={"source": SOURCE, "text": JSON, "content": JSON, "title": JSON, "context": JSON},
)
BLOCKS = st.lists(TEXT | LONG_TEXT | IMAGE | ODD, max_size=80)
CONTENT = (
    st.binary(max_size=200)
    | JSON.map(lambda value: json.dumps(value).encode())
    | BLOCKS.map(lambda blocks: json.dumps(blocks).encode())
)
BASE64 = re.compile(rb"[A-Za-z0-9+/]{512,}")
MAGICS = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF")


def project(content: bytes, *, is_error: bool = False, policy: Policy = POLICY) -> Plan:
    return projector.project(content, is_error=is_error, policy=policy)


def body(*blocks: Any, policy: Policy = POLICY) -> dict[str, Any]:
    return json.loads(project(outcome(*blocks), policy=policy).projected.body)


def shown(*blocks: Any) -> list[str]:
    """The result in words."""
    return list(artifacts.words(projections.read(project(outcome(*blocks)).projected.body)))


def failure(code: str) -> bytes:
    return b'{"code":"%s","kind":"failure","v":1}' % code.encode()


@given(CONTENT, st.booleans(), st.sampled_from((POLICY, WITHOUT_STORE)))
def test_it_is_total_bounded_and_never_varies(
    content: bytes, is_error: bool, policy: Policy
) -> None:
    """P10, and what a reader may rely on: the body decodes and is canonical, and it refers to
    exactly what is stored."""
    plan = project(content, is_error=is_error, policy=policy)
    assert plan == project(content, is_error=is_error, policy=policy)
    written = plan.projected.body
    assert written == encode(json.loads(written))
    assert plan.projected.digest == digests.digest("counterfoil.projection.v1", written)
    assert len(written) <= BODY_BYTES_MAX
    shown = projections.read(written)
    failed = json.loads(written)["kind"] == "failure"
    assert shown.is_error == (is_error or failed)
    assert len(shown.parts) <= PARTS_MAX
    assert sum(len(text) for text in shown.texts) <= TEXT_CHARS_MAX + 200
    assert {blob.artifact_id for blob in plan.blobs} == set(projections.collect_refs(written))
    assert policy.keeps_blobs or not plan.blobs


@given(CONTENT)
def test_every_reference_describes_its_bytes(content: bytes) -> None:
    plan = project(content)
    blobs = {blob.artifact_id: blob for blob in plan.blobs}
    parts = projections.read(plan.projected.body).parts
    for part in parts:
        if not isinstance(part, projections.Artifact):
            continue
        blob = blobs[part.id]
        sha256 = hashlib.sha256(blob.body)
        assert (part.size, part.sha256) == (len(blob.body), sha256.hexdigest())
        expected = artifacts.artifact_id("wrkspc_1", sha256.digest(), blob.media_type, blob.role)
        assert part.id == expected
        assert max(part.w, part.h) <= 2000


@given(
    st.sampled_from((png, gif, jpeg, lambda w, h: webp(w, h, "VP8X"))),
    st.sampled_from(("", "x", "data:image/png;base64,", "\n", "\0", "é", "abc/")),
    st.sampled_from(("text", "odd", "json", "key", "wrong", "large")),
    st.integers(1, 2000),
)
def test_no_body_holds_an_inline_image(make: Any, before: str, where: str, edge: int) -> None:
    """P12: no run of 512 or more characters of base64 decodes to an image."""
    encoded = before + base64.b64encode(make(edge, edge) + bytes(3000)).decode()
    content = {
        "text": [text(f"see {encoded} there")],
        "odd": [{"type": "audio", "data": encoded}],
        "json": {"screenshot": encoded},
        "key": {encoded: 1},
        "wrong": [{"type": "image", "source": {"type": "base64", "data": encoded}}],
        "large": [{"type": "image", "source": {"type": "url", "url": encoded}}],
    }[where]
    for policy in (POLICY, WITHOUT_STORE):
        written = project(json.dumps(content).encode(), policy=policy).projected.body
        for run in BASE64.findall(written):
            for start in range(4):
                usable = run[start : start + (len(run) - start) // 4 * 4]
                assert not base64.b64decode(usable).startswith(MAGICS)


@given(st.lists(TEXT, max_size=PARTS_MAX), st.booleans())
def test_text_is_kept_and_the_body_is_canonical(blocks: list[Any], is_error: bool) -> None:
    written = project(json.dumps(blocks).encode(), is_error=is_error).projected.body
    found = json.loads(written)
    assert found["kind"] == "content"
    assert found.get("is_error", False) is is_error
    assert [p["text"] for p in found["parts"]] == [
        b["text"].replace("\x00", "\\u0000") for b in blocks
    ]


def test_the_bytes_are_those_of_the_contract() -> None:
    two = '{"kind":"content","parts":[{"kind":"text","text":"a"},{"kind":"text","text":"ü"}],"v":1}'
    assert project(outcome(text("a"), text("ü"))).projected.body == two.encode()
    empty = b'{"is_error":true,"kind":"content","parts":[],"v":1}'
    assert project(b"", is_error=True).projected.body == empty


def test_what_text_cannot_carry_is_replaced() -> None:
    content = rb'[{"type":"text","text":"a\u0000b\ud800c\ud83d\ude00"}]'
    found = json.loads(project(content).projected.body)
    assert found["parts"][0]["text"] == "a\\u0000b\ufffdc😀"


@pytest.mark.parametrize(
    "content",
    [
        b'[{"type":"text","text":"a","text":"b"}]',
        b'[{"type":"text","text":"a","n":NaN}]',
        b'[{"type":"odd","n":1e999}]',
        b"\xff",
        b"[",
        b"[" * 200_000,
    ],
)
def test_what_has_no_projection_says_so_and_nothing_else(content: bytes) -> None:
    """P11: one code, one body, whatever failed."""
    plan = project(content, is_error=True)
    assert plan == project(content)
    assert plan.projected.body == failure("projection_failed")
    assert plan.blobs == ()


@pytest.mark.parametrize("error", [MemoryError, TimeoutError, TypeError, OverflowError])
def test_a_bug_in_the_projector_keeps_no_outcome_from_its_commit(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error("secret")

    monkeypatch.setattr(projector.pieces, "read", fail)
    assert project(outcome(text("a"))).projected.body == failure("projection_failed")


def test_a_value_that_is_no_list_of_blocks_is_json_or_text() -> None:
    for value in ({"b": 1.0, "a": [None]}, [1], [[]], {}, 1, None):
        found = project(json.dumps(value).encode(), is_error=True).projected.body
        assert found == encode({"kind": "json", "value": value, "is_error": True, "v": 1})
    assert project(b'"a\\u0000"').projected.body == b'{"kind":"text","text":"a\\\\u0000","v":1}'


def nested(depth: int) -> Any:
    return {} if depth == 0 else {"a": nested(depth - 1)}


def test_json_that_is_too_deep_or_too_wide_is_text() -> None:
    for value, kind in (
        (nested(32), "json"),
        (nested(33), "content"),
        ([0] * 19_999, "json"),
        ([0] * 20_000, "content"),
        (["x" * 99_000], "json"),
        (["x y" * 33_334], "content"),
        (["\x01" * 90_000], "content"),
    ):
        found = json.loads(project(json.dumps(value).encode()).projected.body)
        assert found["kind"] == kind
    deep = json.loads(project(json.dumps(nested(33)).encode()).projected.body)
    assert json.loads(deep["parts"][0]["text"]) == nested(33)


def test_unknown_blocks_are_shown_as_canonical_json_without_their_bytes() -> None:
    block = {"type": "audio", "mime": "audio/wav", "data": "A" * 600, "n": 1.0}
    found = '{"data":"[600 characters of base64 not kept]","mime":"audio/wav","n":1,"type":"audio"}'
    assert shown(block) == [found]
    assert shown({"type": "text", "text": 1}) == ['{"text":1,"type":"text"}']
    assert shown({"type": "image"}) == ['{"type":"image"}']


def test_documents_and_search_results_are_shown_as_text() -> None:
    plain = {"type": "text", "media_type": "text/plain", "data": "body"}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
    document = {"type": "document", "source": plain, "title": "T", "context": "C"}
    assert shown(document) == ["Document: T\nContext: C\nbody"]
    assert shown({"type": "document", "source": plain, "title": None}) == ["body"]
    only = "[document not kept: only documents of plain text are shown]"
    assert shown({"type": "document", "source": pdf, "title": "T"}) == [f"Document: T\n{only}"]
    url = {"type": "url", "url": "https://x.example/secret"}
    assert shown({"type": "document", "source": url}) == [
        "[document not kept: its source is an address]"
    ]
    found = {
        "type": "search_result",
        "title": "T",
        "source": "https://x.example",
        "content": [text("a"), text("b")],
        "citations": {"enabled": True},
    }
    assert shown(found) == ["Search result: T\nSource: https://x.example\na\nb"]


def test_an_image_becomes_a_reference() -> None:
    plan = project(outcome(text("see"), image(png(640, 480), "image/gif")))
    (blob,) = plan.blobs
    assert (blob.body, blob.media_type) == (png(640, 480), "image/png")
    said, reference = json.loads(plan.projected.body)["parts"]
    assert said == {"kind": "text", "text": "see"}
    assert reference == {
        "kind": "artifact",
        "artifact_id": blob.artifact_id,
        "media_type": "image/png",
        "size": len(blob.body),
        "sha256": hashlib.sha256(blob.body).hexdigest(),
        "w": 640,
        "h": 480,
    }


def url(address: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "url", "url": address}}


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (image(b"<svg/>"), "it is not PNG, JPEG, WebP or GIF"),
        (image(png(2001, 1)), "it is wider or higher than 2000 pixels"),
        (image(png(1, 2001)), "it is wider or higher than 2000 pixels"),
        (image(png(0, 1)), "its header does not tell its width and height"),
        (image(png(size=IMAGE_BYTES_MAX + 1)), "it is larger than 3.75 MiB"),
        (image(png(size=6 * 1024 * 1024)), "it is larger than 3.75 MiB"),
        ({"type": "image", "source": {"type": "base64", "data": "%"}}, "it is not valid base64"),
        ({"type": "image", "source": {"type": "base64", "data": "é"}}, "it is not valid base64"),
        ({"type": "image", "source": {"type": "base64"}}, "its source is of an unknown kind"),
        (url("https://x.example/a.png"), "its source is an address"),
        (url("data:image/png;base64,AAAA"), "its source is an address"),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, "its source is a file"),
    ],
)
def test_an_image_that_is_not_kept_says_why(block: Any, reason: str) -> None:
    plan = project(outcome(block))
    assert plan.blobs == ()
    assert shown(block) == [f"[image not kept: {reason}]"]


def test_an_image_as_large_as_may_be_is_kept() -> None:
    """What is kept, the provider takes: it counts the characters of the base64."""
    for body in (png(size=IMAGE_BYTES_MAX), png(2000, 2000)):
        (kept,) = project(outcome(image(body))).blobs
        assert len(base64.b64encode(kept.body)) <= windows.IMAGE_BASE64_MAX


def test_the_same_image_is_stored_once() -> None:
    plan = project(outcome(image(png()), image(png())))
    assert len(plan.blobs) == 1
    assert len(json.loads(plan.projected.body)["parts"]) == 2


def test_parts_and_images_beyond_the_limits_are_counted() -> None:
    counted = body(*[image(png(n, 1)) for n in range(1, 7)], text("z"))["parts"]
    assert [part["kind"] for part in counted] == ["artifact"] * 4 + ["text"] * 2
    assert counted[4]["text"] == "z"
    assert counted[5]["text"] == "[left out of this result: 2 images]"
    exact = body(*[text("x")] * PARTS_MAX)["parts"]
    assert len(exact) == PARTS_MAX
    over = body(*[text("x")] * (PARTS_MAX + 1))["parts"]
    assert len(over) == PARTS_MAX
    assert over[-1]["text"] == "[left out of this result: 2 texts]"
    both = body(*[text("x")] * 70, *[image(png(n, 1)) for n in range(1, 7)])["parts"]
    assert both[-1]["text"] == "[left out of this result: 6 images and 7 texts]"
    assert (
        body(*[text("x")] * 63, *[image(png(n, 1)) for n in range(1, 6)])["parts"][-1]["text"]
        == "[left out of this result: 5 images]"
    )


def test_text_beyond_the_limit_is_kept_apart_and_previewed() -> None:
    exact = [text("x" * 60_000), text("é" * 40_000)]
    assert not project(outcome(*exact)).blobs
    long = [text("a" * 60_000), image(png()), text("é" * 40_000), text("z")]
    plan = project(outcome(*long))
    kept, picture = plan.blobs
    assert kept.body.decode() == "a" * 60_000 + "\n" + "é" * 40_000 + "\nz"
    assert (kept.media_type, picture.media_type) == ("text/plain", "image/png")
    preview, reference, shown_image = json.loads(plan.projected.body)["parts"]
    between = "\n\n[98,003 characters are left out here]\n\n"
    assert preview["text"] == "a" * 1200 + between + "é" * 798 + "\nz"
    assert reference["artifact_id"] == kept.artifact_id
    assert "w" not in reference
    assert shown_image["w"] == 3


def test_what_no_row_may_hold_is_kept_apart_too() -> None:
    """Control characters take six bytes each in JSON."""
    plan = project(outcome(text("\x01" * 90_000)))
    assert len(plan.blobs) == 1
    assert len(plan.projected.body) < 20_000
    assert bounded(b"x" * BODY_BYTES_MAX) == b"x" * BODY_BYTES_MAX
    assert bounded(b"x" * (BODY_BYTES_MAX + 1)) == failure("projection_too_large")


def test_without_a_store_words_stand_for_what_is_not_kept() -> None:
    plan = project(outcome(text("a"), image(png())), policy=WITHOUT_STORE)
    assert [p["text"] for p in json.loads(plan.projected.body)["parts"]] == [
        "a",
        "[stored copy unavailable]",
    ]
    (preview,) = body(text("x" * 100_001), policy=WITHOUT_STORE)["parts"]
    assert preview["text"].endswith("[The rest was not kept.]")


def test_text_beyond_what_an_artifact_holds_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projector, "ARTIFACT_BYTES_MAX", 100_001)
    assert len(project(outcome(text("x" * 100_001))).blobs) == 1
    plan = project(outcome(text("x" * 100_002)))
    assert plan.blobs == ()
    assert b"[The rest was not kept.]" in plan.projected.body


def test_a_denial_keeps_two_thousand_characters_of_its_reason() -> None:
    assert deny("", POLICY).projected.body == b'{"kind":"denied","v":1}'
    found = json.loads(deny("x" * 3_000, POLICY).projected.body)
    assert found == {"kind": "denied", "reason": "x" * 2_000, "v": 1}


def test_closed_calls_have_projections_of_their_own() -> None:
    for projected in (not_run(), may_have_run()):
        assert projections.read(projected.body).is_error
    assert may_have_run().body == failure("outcome_unknown")


def test_long_texts_are_searched_in_linear_time() -> None:
    """Runs that are a little too short to be inline bytes, eight million characters of them."""
    plan = project(outcome(text(("A" * 511 + " ") * 16_000)))
    assert len(plan.blobs) == 1
