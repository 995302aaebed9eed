"""One list of reasons: each has a gRPC status, an HTTP status, a type and an example."""

import grpc
import pytest
from counterfoil.types.v1 import error_reason_pb2 as pb

from foundation.errors import Failure, name_of, reason_of, surface_of

REASONS = [value.number for value in pb.ErrorReason.DESCRIPTOR.values if value.number]
HTTP_TYPES = {
    400: {"invalid_request_error"},
    401: {"authentication_error"},
    403: {"permission_error"},
    404: {"not_found_error"},
    405: {"invalid_request_error"},
    409: {"conflict_error"},
    413: {"request_too_large"},
    429: {"rate_limit_error"},
    500: {"api_error"},
    503: {"api_error"},
    504: {"timeout_error"},
}


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_has_a_complete_surface(reason: pb.ErrorReason.ValueType) -> None:
    surface = surface_of(reason)
    assert surface.grpc_code in {code.value[0] for code in grpc.StatusCode}
    assert surface.http_type in HTTP_TYPES[surface.http_status]
    options = pb.ErrorReason.DESCRIPTOR.values_by_number[reason].GetOptions()
    assert options.Extensions[pb.error_mapping].example


@pytest.mark.parametrize("reason", REASONS)
def test_names_travel_and_come_back(reason: pb.ErrorReason.ValueType) -> None:
    assert reason_of(name_of(reason)) == reason


def test_a_conflict_that_repeats_will_not_help_says_so() -> None:
    assert surface_of(pb.ERROR_REASON_CONFLICT).should_retry == "false"


def test_an_unknown_reason_is_internal() -> None:
    assert reason_of("FROM_THE_FUTURE") == pb.ERROR_REASON_INTERNAL


def test_the_path_stands_before_the_message() -> None:
    failure = Failure(pb.ERROR_REASON_INVALID_FIELD, "is required", path="events.0.content")
    assert failure.text == "events.0.content: is required"
