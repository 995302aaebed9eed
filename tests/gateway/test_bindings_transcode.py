"""`body`, `response_body`, path variables and update masks, over a contract made for the test."""

import pytest
from counterfoil.types.v1 import annotations_pb2
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor

from foundation.google import http_binding
from foundation.json import InvalidJson
from gateway.routes import BindingError, Route, routes_of
from gateway.transcoding import Transcoder

Field = descriptor_pb2.FieldDescriptorProto


def contract(name: str, **binding: str) -> FileDescriptor:
    """One service whose only method is bound as said."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"gateway_sample_{name}.proto",
        package=f"counterfoil.{name}.v1",
        syntax="proto3",
        dependency=["google/protobuf/field_mask.proto", "google/api/annotations.proto"],
    )
    thing = file.message_type.add(name="Thing")
    thing.field.add(name="title", number=1, type=Field.TYPE_STRING, label=1)
    thing.field.add(name="size", number=2, type=Field.TYPE_INT64, label=1)
    request = file.message_type.add(name="SaveRequest")
    kind = f".counterfoil.{name}.v1.Thing"
    request.field.add(name="id", number=1, type=Field.TYPE_INT64, label=1)
    request.field.add(name="thing", number=2, type=Field.TYPE_MESSAGE, label=1, type_name=kind)
    mask = request.field.add(name="update_mask", number=3, type=Field.TYPE_MESSAGE, label=1)
    mask.type_name = ".google.protobuf.FieldMask"
    mask.options.Extensions[annotations_pb2.server_bound] = True
    request.field.add(name="dry", number=4, type=Field.TYPE_BOOL, label=1)
    response = file.message_type.add(name="SaveResponse")
    response.field.add(name="thing", number=1, type=Field.TYPE_MESSAGE, label=1, type_name=kind)
    method = file.service.add(name="ThingService").method.add(
        name="Save", input_type=kind.replace("Thing", "SaveRequest")
    )
    method.output_type = kind.replace("Thing", "SaveResponse")
    rule = method.options.Extensions[http_binding]
    for key, value in binding.items():
        setattr(rule, key, value)
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindFileByName(file.name)


def only_route(name: str, **binding: str) -> Route:
    (route,) = routes_of([contract(name, **binding)])
    return route


def test_the_owner_is_named_by_the_package() -> None:
    assert only_route("owner", get="/things/{id}").owner == "owner"


def test_a_whole_body_fills_the_request_and_the_mask_names_its_keys() -> None:
    transcoder = Transcoder(only_route("whole", post="/things/{id}", body="*"))
    found = transcoder.request(["7"], b"dry=true", b'{"thing": {"title": "a"}}')
    assert str(found) == 'id: 7\nthing {\n  title: "a"\n}\nupdate_mask {\n  paths: "thing"\n}\n'


def test_a_body_field_takes_the_body_and_the_query_takes_the_rest() -> None:
    transcoder = Transcoder(
        only_route("field", post="/things/{id}", body="thing", response_body="thing")
    )
    found = transcoder.request(["7"], b"dry=true&beta=true", b'{"size": 3}')
    assert str(found) == (
        'id: 7\nthing {\n  size: 3\n}\nupdate_mask {\n  paths: "size"\n}\ndry: true\n'
    )
    answer = transcoder.response_type.FromString(b"\x0a\x03\x0a\x01a")
    assert transcoder.response(answer) == b'{"title":"a","size":0}'


def test_a_variable_of_a_nested_field_is_put_there() -> None:
    transcoder = Transcoder(only_route("nested", get="/things/{thing.title}"))
    assert str(transcoder.request(["a b"], b"", b"")) == 'thing {\n  title: "a b"\n}\n'


def test_a_variable_is_read_by_its_type() -> None:
    transcoder = Transcoder(only_route("typed", get="/things/{id}"))
    with pytest.raises(InvalidJson, match="expected an integer, got 'x'") as caught:
        transcoder.request(["x"], b"", b"")
    assert caught.value.path == "id"


@pytest.mark.parametrize(
    ("name", "binding"),
    [
        ("bad1", {"get": "/things/{nothing}"}),
        ("bad2", {"get": "/things/{thing.nothing}"}),
        ("bad3", {"post": "/things", "body": "dry"}),
        ("bad4", {"get": "/things", "response_body": "nothing"}),
        ("bad5", {"get": "/things/{id=things/*}"}),
        ("bad6", {"post": "/things/{id}:run"}),
        ("bad7", {"get": "things"}),
    ],
)
def test_a_binding_that_cannot_be_served_is_refused_at_start(
    name: str, binding: dict[str, str]
) -> None:
    with pytest.raises(BindingError):
        Transcoder(only_route(name, **binding))
