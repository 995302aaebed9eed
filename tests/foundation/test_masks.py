"""Masks of updates: what is named is changed, what cannot be changed is refused by name."""

import pytest
from counterfoil.ledger.v1 import session_pb2

from foundation.errors import Failure
from foundation.masks import named

KNOWN = ("title", "metadata")


def request(*paths: str) -> session_pb2.UpdateSessionRequest:
    found = session_pb2.UpdateSessionRequest(session_id="sesn_1", title="x")
    found.update_mask.SetInParent()
    found.update_mask.paths.extend(paths)
    return found


def test_without_a_mask_the_fields_that_are_set_change() -> None:
    given = session_pb2.UpdateSessionRequest(session_id="sesn_1", title="x")
    assert named(given, KNOWN) == {"title"}


def test_a_mask_says_what_changes_whatever_is_set() -> None:
    assert named(request("metadata"), KNOWN) == {"metadata"}
    assert named(request(), KNOWN) == set()


def test_members_beside_the_changes_may_be_named_and_change_nothing() -> None:
    assert named(request("title", "session_id"), KNOWN, ("session_id",)) == {"title"}


@pytest.mark.parametrize("path", ["update_mask", "agent.update_mask"])
def test_a_name_that_cannot_change_is_refused(path: str) -> None:
    with pytest.raises(Failure) as refused:
        named(request("title", "status"), KNOWN, path=path)
    assert refused.value.path == path
    assert refused.value.message == "may name title, metadata; got 'status'"
