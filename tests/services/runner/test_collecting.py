"""What the collector does with an artifact, by its state and by whether something refers to it."""

import pytest
from counterfoil.files.v1 import artifacts_pb2 as pb

from services.runner.collecting import Plan, plan


@pytest.mark.parametrize(
    ("state", "referred", "expected"),
    [
        (pb.ARTIFACT_STATE_STAGED, False, Plan(condemn=("art_1",))),
        (pb.ARTIFACT_STATE_STAGED, True, Plan()),
        (pb.ARTIFACT_STATE_LIVE, False, Plan(condemn=("art_1",))),
        (pb.ARTIFACT_STATE_LIVE, True, Plan()),
        (pb.ARTIFACT_STATE_CONDEMNED, False, Plan(sweep=("art_1",))),
        (pb.ARTIFACT_STATE_CONDEMNED, True, Plan(revive=("art_1",))),
        (pb.ARTIFACT_STATE_DELETED, False, Plan()),
        (pb.ARTIFACT_STATE_DELETED, True, Plan()),
    ],
)
def test_an_artifact_goes_one_step_at_a_time(
    state: "pb.ArtifactState.ValueType", referred: bool, expected: Plan
) -> None:
    owned = pb.OwnedArtifact(artifact=pb.Artifact(id="art_1"), state=state)
    assert plan([owned], {"art_1"} if referred else {"art_2"}) == expected
