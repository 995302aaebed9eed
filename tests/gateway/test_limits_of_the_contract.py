"""Every limit of the public contracts holds exactly: its own value passes, one beyond does not."""

from collections.abc import Iterator

from buf.validate import validate_pb2
from google.protobuf.descriptor import Descriptor

from foundation.errors import Failure
from foundation.json import InvalidJson, validate
from gateway.app import CONTRACTS
from gateway.routes import routes_of
from gateway.transcoding import Transcoder
from tests.support.limits import Case, Request, cases_of

CASES = [case for route in routes_of(CONTRACTS) for case in cases_of(route)]


def _paths(transcoder: Transcoder, request: Request) -> list[str]:
    """Where the gateway or the service behind it says that something is wrong."""
    try:
        message = transcoder.request(request.values, request.query, request.body)
    except InvalidJson as error:
        return [error.path]
    except Failure as failure:
        return [failure.message.partition(":")[0]]
    return [violation.path for violation in validate(message)]


def _wrong(case: Case, transcoder: Transcoder) -> Iterator[str]:
    for request in case.good:
        if paths := _paths(transcoder, request()):
            yield f"{case.name}: the limit itself is refused at {paths}"
    for request in case.bad:
        paths = _paths(transcoder, request())
        if not set(case.paths) & set(paths):
            yield f"{case.name}: one beyond is refused at {paths}"


def test_the_limit_is_accepted_and_one_beyond_is_refused_by_path() -> None:
    wrong: list[str] = []
    large: set[tuple[str, str]] = set()
    for case in CASES:
        if case.large:
            if (case.field, case.rule) in large:
                continue
            large.add((case.field, case.rule))
        wrong += _wrong(case, Transcoder(case.route))
    assert not wrong, "\n".join(wrong)


def _with_rules(message: Descriptor, seen: set[Descriptor]) -> Iterator[str]:
    """The fields with rules in a message and all below, whatever JSON makes of them."""
    if message in seen:
        return
    seen.add(message)
    for field in message.fields:
        if field.GetOptions().HasExtension(validate_pb2.field):
            yield field.full_name
        if field.message_type is not None:
            yield from _with_rules(field.message_type, seen)


def test_no_field_with_a_rule_is_left_out() -> None:
    seen: set[Descriptor] = set()
    inputs = [route.method.input_type for route in routes_of(CONTRACTS)]
    fields = {name for message in inputs for name in _with_rules(message, seen)}
    assert fields - {case.field for case in CASES} == set()
