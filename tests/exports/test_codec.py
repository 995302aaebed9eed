"""P29: results of other makes become projections once, in one place, whatever they are."""

import ast
import base64
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.importing.codec import Translated, normalize
from cli.importing.codec import project as made_by
from foundation import projections
from foundation.artifacts import artifact_id
from foundation.errors import Failure
from tests.exports.support import Pair, talk
from tests.exports.tampering import sealed_again
from tests.offline_model.pictures import image, png
from tests.support.model import script, text

REPO = Path(__file__).resolve().parents[2]

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
_BLOCKS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "image", "x"])},
        optional={"text": _VALUES, "data": st.text()},
    ),
    max_size=70,
)
_RESULTS = (
    _VALUES
    | _BLOCKS
    | st.fixed_dictionaries(
        {"content": _BLOCKS | st.text()},
        optional={"isError": _VALUES, "is_error": _VALUES, "type": st.just("tool_result")},
    )
).map(lambda value: json.dumps(value).encode())


def project(result: bytes | None) -> bytes:
    return made_by(result, "wrkspc_x").body


@given(st.none() | _RESULTS | st.binary())
def test_every_result_has_one_projection_which_is_its_own(result: bytes | None) -> None:
    made = project(result)
    projections.read(made)
    assert project(result) == made
    assert project(made) == made


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ('"plain"', ("plain",)),
        ('[{"type":"text","text":"a"},{"type":"text","text":"b"}]', ("a", "b")),
        ('{"content":[{"type":"text","text":"a"}],"isError":true}', ("a",)),
        ('{"type":"tool_result","tool_use_id":"x","content":"a"}', ("a",)),
        (
            '{"content":[{"type":"image","data":"AAAA"}]}',
            ("[image not kept: it is not PNG, JPEG, WebP or GIF]",),
        ),
        ('[{"type":"image"}]', ("[image: not carried over]",)),
        ('[{"type":"audio","data":"AAAA"}]', ("[audio: not carried over]",)),
        ('{"rows":3}', ('{"rows":3}',)),
        ("[]", ()),
        ("{", ("The call ran elsewhere. Its result cannot be shown here.",)),
        (
            json.dumps("a" * 600_000),
            ("The call ran, but its result is too large to be shown here.",),
        ),
    ],
)
def test_known_shapes_keep_their_words(result: str, shown: tuple[str, ...]) -> None:
    assert projections.read(project(result.encode())).texts == shown


PICTURE = png(40, 30).ljust(600, b"\0")
FORMS = {
    "of a provider": image(PICTURE, "image/png"),
    "of a server of tools": {
        "type": "image",
        "data": base64.b64encode(PICTURE).decode(),
        "mimeType": "image/png",
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_an_image_with_valid_bytes_becomes_an_artifact(form: str) -> None:
    result = json.dumps({"content": [text("a"), FORMS[form]]}).encode()
    made = made_by(result, "wrkspc_x")
    (kept,) = made.images
    assert kept.body == PICTURE
    words, shown = projections.read(made.body).parts
    assert isinstance(shown, projections.Artifact)
    assert (shown.id, shown.media_type, shown.w, shown.h) == (
        artifact_id("wrkspc_x", hashlib.sha256(PICTURE).digest(), "image/png", 1),
        "image/png",
        40,
        30,
    )
    assert isinstance(words, projections.Text)
    # As many as a result may show; the others are named.
    five = json.dumps([{**FORMS[form]} for _ in range(5)]).encode()
    assert projections.read(project(five)).texts == ("[image: not carried over]",)


def test_lines_of_today_pass_as_they_are() -> None:
    for line in (b'{"type":"journal.outcome","v":1,"projection":{}}', b'{"type":"x"}'):
        assert normalize(line, "wrkspc_x") == Translated(line)
    for line in (b"[]", b'{"type":"x","v":0}', b'{"type":"journal.outcome","v":0}'):
        with pytest.raises(Failure):
            normalize(line, "wrkspc_x")


def test_only_the_import_reads_through_the_codec() -> None:
    users = {
        str(path.relative_to(REPO))
        for package in ("cli", "foundation", "gateway", "services")
        for path in (REPO / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "cli.importing.codec"
    }
    assert users == {"cli/importing/lines.py"}


def older(lines: list[bytes], mark: bytes, result: object) -> None:
    """Let the outcome that holds these bytes be one of an older make, with this result."""
    at = next(n for n, line in enumerate(lines) if mark in line and b"journal.outcome" in line)
    outcome = json.loads(lines[at])
    kept = {name: outcome[name] for name in ("operation_id", "role", "source", "created_at")}
    made = {"type": "journal.outcome", "v": 0, **kept, "result": result}
    lines[at] = json.dumps(made, separators=(",", ":")).encode() + b"\n"


async def test_an_outcome_of_an_older_make_is_translated_on_its_way_in(pair: Pair) -> None:
    chat = await talk(pair.source, image(PICTURE, "image/png"))
    lines = await pair.export(chat.id)
    older(lines, b"noted", [text("noted"), image(PICTURE, "image/png")])
    # The line of the artifact is not needed: the result brings the bytes.
    (own,) = [n for n, line in enumerate(lines) if b'"type":"files.artifact"' in line]
    del lines[own]
    done = await pair.take(sealed_again(lines))
    assert done.code == 0, done.err
    await pair.verify(chat.id)
    moved = type(chat)(pair.target, chat.id, pair.target.client())
    # The next request holds the translated result where the model saw it before.
    before = len(await pair.source.model.asked())
    await moved.say(script({"content": [text("here")]}))
    (asked,) = (await pair.source.model.asked(before + 1))[before:]
    assert base64.b64encode(PICTURE) in asked.body
