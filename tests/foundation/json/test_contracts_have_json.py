"""Every message of the contracts has a JSON form, so no route fails at its first request."""

import importlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from google.protobuf.descriptor import Descriptor

from foundation.json.plans import Plans
from foundation.json.reading import reader_for
from foundation.json.shape import Shape, ShapeError
from foundation.json.writing import writer_for
from tests.foundation.json.samples import sample
from tools.proto import GEN_DIR


def contract_messages() -> list[Descriptor]:
    modules = (
        path.relative_to(GEN_DIR).with_suffix("").parts
        for path in sorted(Path(GEN_DIR, "counterfoil").rglob("*_pb2.py"))
    )
    files = [importlib.import_module(".".join(parts)).DESCRIPTOR for parts in modules]
    return [message for file in files for message in file.message_types_by_name.values()]


def test_every_contract_message_compiles() -> None:
    messages = contract_messages()
    assert len(messages) > 20
    for message in messages:
        reader_for(message)
        writer_for(message)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("BadTwoOneofs", "has exactly one oneof"),
        ("BadScalarVariant", "a variant of a json_union is a message"),
        ("BadSameTag", "two variants have the json_tag same"),
        ("BadClash", "two members are named"),
        ("BadRaw", "json_raw is for bytes"),
        ("BadShorthand", "json_shorthand names no field"),
        ("BadListOf", "json_list_of names"),
        ("BadMap", "only maps with string keys"),
        ("BadMask", "google.protobuf.FieldMask has no JSON form"),
    ],
)
def test_a_contradictory_contract_is_named(name: str, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        reader_for(sample(name).DESCRIPTOR)


def test_threads_share_plans_that_are_complete() -> None:
    class Plan:
        ready = False

        def compile(self, shape: Shape) -> None:
            started.set()
            assert other_may_finish.wait(10)
            self.ready = True

    started, other_may_finish = Event(), Event()
    plans = Plans(lambda shape: Plan())
    leaf = sample("Leaf").DESCRIPTOR
    with ThreadPoolExecutor() as pool:
        first = pool.submit(plans.get, leaf)
        assert started.wait(10)
        second = pool.submit(plans.get, leaf)
        other_may_finish.set()
        assert second.result(10).ready
        assert first.result(10) is second.result(10)


def test_a_failed_plan_is_not_kept() -> None:
    for _ in range(2):
        with pytest.raises(ShapeError):
            reader_for(sample("BadMask").DESCRIPTOR)
