"""What a deployment's patterns match is in no projection, and the version says which patterns."""

import json
from pathlib import Path

import pytest

from foundation.storage import ConfigurationError
from services.journal.projector import deny, project
from services.journal.redaction import NO_REDACTION, Redactor, load
from tests.services.journal.pictures import POLICY, image, outcome, png, text

SECRET = Redactor((r"sk-[a-z0-9]+", "iVBOR"))
POLICY_WITH_PATTERNS = POLICY._replace(redactor=SECRET)


def test_texts_keys_and_denials_are_redacted_before_they_are_projected() -> None:
    content = outcome(text("a sk-123 b"), {"type": "odd", "sk-9": ["sk-abc"]})
    plan = project(content, is_error=False, policy=POLICY_WITH_PATTERNS)
    assert b"sk-" not in plan.projected.body
    assert json.loads(plan.projected.body)["parts"][0]["text"] == "a [redacted] b"
    assert plan.projected.redactor == SECRET.version
    denied = deny("because sk-1", POLICY_WITH_PATTERNS)
    assert json.loads(denied.projected.body)["reason"] == "because [redacted]"
    assert denied.projected.redactor == SECRET.version


def test_the_text_that_is_kept_apart_is_redacted_too() -> None:
    content = outcome(text("x" * 100_000 + " sk-123 "))
    plan = project(content, is_error=False, policy=POLICY_WITH_PATTERNS)
    assert b"sk-" not in plan.blobs[0].body
    assert b"sk-" not in plan.projected.body


def test_images_are_not_text() -> None:
    plan = project(outcome(image(png())), is_error=False, policy=POLICY_WITH_PATTERNS)
    assert plan.blobs[0].body == png()


def test_keys_that_become_equal_are_not_guessed_apart() -> None:
    content = outcome({"type": "odd", "sk-1": 1, "sk-2": 2})
    plan = project(content, is_error=False, policy=POLICY_WITH_PATTERNS)
    assert plan.projected.body == b'{"code":"projection_failed","kind":"failure","v":1}'


def test_the_version_changes_with_the_patterns() -> None:
    assert NO_REDACTION.version == ""
    assert Redactor(("a", "b")).version == Redactor(("a", "b")).version
    assert len({Redactor(p).version for p in (("a", "b"), ("b", "a"), ("ab",), ("a",))}) == 4
    assert len(SECRET.version) == 12


def test_a_file_holds_a_pattern_a_line(tmp_path: Path) -> None:
    file = tmp_path / "patterns"
    file.write_text("# keys\n\nsk-[a-z0-9]+\niVBOR\n")
    assert load(file).version == SECRET.version
    assert load(None) is NO_REDACTION


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"ok\n(open", "line 2: '(open' is no regular expression"),
        (b"a*", "line 1: 'a*' matches empty text"),
        (b"\xff", "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_file_is_refused_by_line(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "patterns"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        load(file)
    assert "COUNTERFOIL_REDACTION_FILE" in str(caught.value)
    assert message in str(caught.value)


def test_the_patterns_of_the_documentation_are_patterns(tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[3] / "docs/operating/redaction.md"
    block = page.read_text().split("```text\n")[1].split("```")[0]
    file = tmp_path / "patterns"
    file.write_text(block)
    load(file)
    content = outcome(text("Authorization: Bearer abc.def and " + "sk_live_" + "a1" * 12))
    plan = project(content, is_error=False, policy=POLICY._replace(redactor=load(file)))
    shown = json.loads(plan.projected.body)["parts"][0]["text"]
    assert shown == "[redacted] and [redacted]"
