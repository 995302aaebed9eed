"""Artifacts have one id per content, and one wording."""

from foundation import artifacts, canonical, projections

TEXT = {
    "kind": "artifact",
    "artifact_id": "art_1",
    "media_type": "text/plain",
    "size": 1234567,
    "sha256": "00",
}
IMAGE = {**TEXT, "artifact_id": "art_2", "media_type": "image/png", "w": 640, "h": 480}


def body(*parts: object) -> bytes:
    return canonical.encode({"v": 1, "kind": "content", "parts": list(parts)})


def test_an_id_depends_on_workspace_content_type_and_role_alone() -> None:
    one = artifacts.artifact_id("wrkspc_1", b"d" * 32, "image/png", 1)
    assert one == artifacts.artifact_id("wrkspc_1", b"d" * 32, "image/png", 1)
    assert one.startswith("art_")
    others = {
        artifacts.artifact_id("wrkspc_2", b"d" * 32, "image/png", 1),
        artifacts.artifact_id("wrkspc_1", b"e" * 32, "image/png", 1),
        artifacts.artifact_id("wrkspc_1", b"d" * 32, "image/gif", 1),
        artifacts.artifact_id("wrkspc_1", b"d" * 32, "image/png", 2),
    }
    assert len(others | {one}) == 5


def test_every_reference_of_a_body_is_collected_once() -> None:
    shown = body({"kind": "text", "text": "a"}, TEXT, IMAGE, TEXT)
    assert projections.collect_refs(shown) == ("art_1", "art_2")
    assert projections.collect_refs(b'{"kind":"denied","v":1}') == ()


def test_words_name_what_was_kept_and_where() -> None:
    shown = projections.read(body({"kind": "text", "text": "a"}, TEXT, {**IMAGE, "alt": "a cat"}))
    assert artifacts.words(shown) == (
        "a",
        "[The whole text, 1,234,567 bytes, is kept in .counterfoil-tool-results/art_1.txt]",
        "[Image art_2: image/png, 640 x 480 pixels, 1,234,567 bytes, a cat]",
    )
