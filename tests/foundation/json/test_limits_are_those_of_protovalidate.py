"""The quick decision whether a message keeps its limits agrees with protovalidate."""

import random
from typing import Any

import protovalidate
import pytest
from buf.validate import validate_pb2 as rules
from counterfoil.ledger.v1 import content_pb2
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from foundation.json.limits import keeps_limits
from foundation.json.shape import is_map, real_oneofs
from tests.foundation.json.test_contracts_have_json import contract_messages

_EACH = 20
_DEPTH_MAX = 6
_LENGTH_MAX = 5_000
_MIB = 1024 * 1024
_TEXTS = ("a", "US", "US\n", "usa", "name_1-b", "name 1", "https://a", "ftp://a", "QQ==", "ü")


class _Maker:
    """Makes messages that mostly keep their limits, and often touch them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def message(self, descriptor: Descriptor, depth: int = 0) -> Any:
        made = message_factory.GetMessageClass(descriptor)()
        if depth == _DEPTH_MAX:
            return made
        oneofs = real_oneofs(descriptor)
        chosen = [self._random.choice(oneof.fields) for oneof in oneofs if self._likely()]
        others = [field for field in descriptor.fields if field.containing_oneof not in oneofs]
        for field in chosen + [field for field in others if self._likely()]:
            self._fill(made, field, depth)
        return made

    def _likely(self) -> bool:
        return self._random.random() < 0.95

    def _fill(self, made: Any, field: FieldDescriptor, depth: int) -> None:
        own = field.GetOptions().Extensions[rules.field]
        if is_map(field):
            assert field.message_type is not None
            key, value = field.message_type.fields
            for _ in range(self._count(own.map.min_pairs, own.map.max_pairs)):
                name = self._value(key, own.map.keys, depth)
                if value.message_type is not None:
                    getattr(made, field.name)[name].CopyFrom(self.message(value.message_type))
                else:
                    getattr(made, field.name)[name] = self._value(value, own.map.values, depth)
        elif field.is_repeated:
            count = self._count(own.repeated.min_items, own.repeated.max_items)
            items = [self._value(field, own.repeated.items, depth) for _ in range(count)]
            getattr(made, field.name).extend(items)
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(self.message(field.message_type, depth + 1))
        else:
            setattr(made, field.name, self._value(field, own, depth))

    def _count(self, low: int, high: int) -> int:
        if self._likely() or high > 50:
            return self._random.choice((low, low + 1))
        return self._random.choice((max(0, low - 1), high, high + 1))

    def _value(self, field: FieldDescriptor, own: Any, depth: int) -> Any:
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_MESSAGE:
                assert field.message_type is not None
                return self.message(field.message_type, depth + 1)
            case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
                return b"\0" * self._size(own.bytes)
            case FieldDescriptor.CPPTYPE_STRING:
                return self._text(own.string)
            case FieldDescriptor.CPPTYPE_ENUM:
                assert field.enum_type is not None
                known = list(field.enum_type.values_by_number)
                return self._random.choice(known) if self._likely() else self._beyond(known)
            case FieldDescriptor.CPPTYPE_INT32 | FieldDescriptor.CPPTYPE_INT64:
                of = own.int32 if field.cpp_type == FieldDescriptor.CPPTYPE_INT32 else own.int64
                within = (of.gte, of.gte + 1, *((of.lte,) if of.lte else ()))
                beyond = (of.gte - 1, of.lte + 1)
                return self._random.choice(within if self._likely() else beyond)
            case FieldDescriptor.CPPTYPE_BOOL:
                return self._likely()
            case _:
                return 1

    def _beyond(self, known: list[int]) -> int:
        return self._random.choice((0, max(known) + 1))

    def _text(self, own: Any) -> str:
        if self._likely():
            if getattr(own, "in"):
                return self._random.choice(list(getattr(own, "in")))
            if own.pattern:
                return self._random.choice(_TEXTS)
        return self._random.choice(("a", "ü")) * self._size(own)

    def _size(self, own: Any) -> int:
        if own.HasField("len") and self._likely():
            return own.len
        beyond = (max(0, own.min_len - 1), own.max_len, own.max_len + 1)
        size = self._random.choice((own.min_len, own.min_len + 1) if self._likely() else beyond)
        return min(size, _LENGTH_MAX)


@pytest.mark.parametrize("seed", range(3))
def test_every_message_of_the_contracts_is_decided_alike(seed: int) -> None:
    kept = broken = 0
    for descriptor in contract_messages():
        maker = _Maker(seed)
        for _ in range(_EACH):
            message = maker.message(descriptor)
            right = not protovalidate.collect_violations(message)
            assert keeps_limits(message) == right, message
            kept, broken = kept + right, broken + (not right)
    assert min(kept, broken) > (kept + broken) / 10


@pytest.mark.parametrize(
    ("text", "right"),
    [("a" * 32 * _MIB, True), ("ü" * 16 * _MIB, True), ("ü" * 16 * _MIB + "a", False)],
    ids=["ascii", "at the limit", "beyond"],
)
def test_the_bytes_of_a_text_count_and_not_its_characters(text: str, right: bool) -> None:
    assert keeps_limits(content_pb2.TextBlock(text=text)) == right


@pytest.mark.parametrize(("data", "right"), [("QQ==", True), ("Q Q=", False)])
def test_a_rule_that_no_plan_knows_is_left_to_protovalidate(data: str, right: bool) -> None:
    image = content_pb2.Base64Image(data=data, media_type="image/png")
    assert keeps_limits(image) == right
    source = content_pb2.ImageSource(base64=image)
    assert keeps_limits(content_pb2.ImageBlock(source=source)) == right
