"""HTTP to a request message and a response message to JSON, by the binding of a route."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from foundation.errors import invalid
from foundation.json import check, decode, decode_query, encode, is_raw, members, present
from foundation.json.errors import clip
from gateway.routes import BindingError, Route

_MASK = "google.protobuf.FieldMask"


class Transcoder:
    """The two translations of one route; raises BindingError when its binding names no field."""

    def __init__(self, route: Route) -> None:
        request, response = route.method.input_type, route.method.output_type
        self.request_type: type[Message] = message_factory.GetMessageClass(request)
        self.response_type: type[Message] = message_factory.GetMessageClass(response)
        self._route = route
        self._mask = _mask_of(request)
        self._body_type = None
        for name in route.variables:
            _field(request, name)
        if route.body not in ("", "*"):
            self._body_type = _message_class(request, route.body)
        self._raw_body = ""
        if route.response_body and is_raw(_field(response, route.response_body)):
            self._raw_body = route.response_body
        elif route.response_body:
            _message_class(response, route.response_body)

    def request(
        self,
        values: Sequence[str],
        query: bytes,
        body: bytes,
        bound: Mapping[str, object] | None = None,
    ) -> Message:
        """The request of a call.

        `values` are the texts of the path's variables, `bound` are further fields that the client
        may not set in a body. Raises InvalidJson or Failure with the path of the bad field.
        """
        fields = {**dict(zip(self._route.variables, values, strict=True)), **(bound or {})}
        if self._route.body == "*":
            return decode(self.request_type, body, bound=fields)
        found = decode_query(self.request_type, _pairs(query), bound=fields)
        if self._body_type is None:
            _refuse_members(body)
        else:
            self._put_body(found, self._body_type, body)
        return found

    def response(self, message: Message) -> bytes:
        """The JSON of an answer; a field with raw JSON is the whole body as it is."""
        if self._raw_body:
            raw: bytes = getattr(message, self._raw_body)
            return raw
        name = self._route.response_body
        return encode(getattr(message, name) if name else message)

    def _put_body(self, request: Message, body_type: type[Message], body: bytes) -> None:
        getattr(request, self._route.body).CopyFrom(decode(body_type, body))
        if self._mask is not None:
            getattr(request, self._mask).paths.extend(present(body_type, body))


def _pairs(query: bytes) -> list[tuple[str, str]]:
    if not query:
        return []
    text = query.decode("utf-8", "surrogateescape")
    # Broken UTF-8 survives as lone surrogates, which the codec refuses with the parameter's name.
    return parse_qsl(text, keep_blank_values=True, errors="surrogateescape")


def _refuse_members(body: bytes) -> None:
    """A call without body takes none, or an empty object as some clients send it."""
    if not body.strip():
        return
    check(body)
    if not body.lstrip().startswith(b"{"):
        raise invalid("", "this call takes no body")
    for name in members(body):
        raise invalid(clip(name), "unknown field: this call takes no body")


def _mask_of(descriptor: Descriptor) -> str | None:
    """The AIP-134 mask of an update, which is filled from the keys that are present."""
    for field in descriptor.fields:
        if field.message_type is not None and field.message_type.full_name == _MASK:
            return field.name
    return None


def _field(descriptor: Descriptor, path: str) -> FieldDescriptor:
    *outer, last = path.split(".")
    for name in outer:
        field = descriptor.fields_by_name.get(name)
        if field is None or field.message_type is None:
            raise BindingError(f"{descriptor.full_name} has no message field {name}")
        descriptor = field.message_type
    if last not in descriptor.fields_by_name:
        raise BindingError(f"{descriptor.full_name} has no field {last}")
    return descriptor.fields_by_name[last]


def _message_class(descriptor: Descriptor, name: str) -> Any:
    field = _field(descriptor, name)
    if field.message_type is None or field.is_repeated:
        raise BindingError(f"{field.full_name} is not a message: it cannot be a whole body")
    return message_factory.GetMessageClass(field.message_type)
