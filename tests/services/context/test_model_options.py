"""How the model is asked: what a session pinned stands in every request, and in its snapshot."""

import json
from typing import Any, get_args, get_type_hints

import pytest
from anthropic.types import anthropic_beta_param
from anthropic.types.beta import beta_output_config_param, message_create_params
from counterfoil.types.v1 import model_pb2, runtime_pb2
from counterfoil.types.v1.capability_pb2 import CapabilityProfile

from services.context import materializer, recipe
from services.context.materializer import request_betas, request_head
from tests.services.context.conftest import Bench, runtime
from tests.services.context.histories import projection, text, use

CACHING = CapabilityProfile(
    id="caching", version=1, adapter="messages", automatic_prompt_caching=True
)
FAST_MODE = "fast-mode-2026-02-01"


def options(**pinned: Any) -> runtime_pb2.SessionRuntime:
    return runtime_pb2.SessionRuntime(model="m", model_options=model_pb2.ModelOptions(**pinned))


ROWS: list[tuple[runtime_pb2.SessionRuntime, str, list[str]]] = [
    (options(), "", []),
    (
        options(effort=model_pb2.MODEL_EFFORT_LOW),
        ',"output_config":{"effort":"low"}',
        [],
    ),
    (options(effort=model_pb2.MODEL_EFFORT_MEDIUM), ',"output_config":{"effort":"medium"}', []),
    (options(effort=model_pb2.MODEL_EFFORT_HIGH), ',"output_config":{"effort":"high"}', []),
    (options(effort=model_pb2.MODEL_EFFORT_XHIGH), ',"output_config":{"effort":"xhigh"}', []),
    (options(effort=model_pb2.MODEL_EFFORT_MAX), ',"output_config":{"effort":"max"}', []),
    (options(speed=model_pb2.MODEL_SPEED_STANDARD), ',"speed":"standard"', [FAST_MODE]),
    (options(speed=model_pb2.MODEL_SPEED_FAST), ',"speed":"fast"', [FAST_MODE]),
    (options(inference_geo='"us"'), ',"inference_geo":"\\"us\\""', []),
    (
        runtime_pb2.SessionRuntime(model="m", profile=CACHING),
        ',"cache_control":{"type":"ephemeral"}',
        [],
    ),
    (
        runtime_pb2.SessionRuntime(
            model="m",
            profile=CACHING,
            model_options=model_pb2.ModelOptions(
                effort=model_pb2.MODEL_EFFORT_LOW,
                speed=model_pb2.MODEL_SPEED_FAST,
                inference_geo="us",
            ),
        ),
        ',"output_config":{"effort":"low"},"speed":"fast","inference_geo":"us"'
        ',"cache_control":{"type":"ephemeral"}',
        [FAST_MODE],
    ),
]


@pytest.mark.parametrize(("pinned", "members", "betas"), ROWS)
def test_what_was_pinned_is_asked_for(
    pinned: runtime_pb2.SessionRuntime, members: str, betas: list[str]
) -> None:
    assert request_head(pinned, 1).decode() == (
        '{"model":"m","max_tokens":1' + members + ',"messages":['
    )
    assert request_betas(pinned) == betas


def test_every_value_is_one_that_the_official_client_knows() -> None:
    known = get_type_hints(message_create_params.MessageCreateParamsBase)
    efforts = str(get_type_hints(beta_output_config_param.BetaOutputConfigParam)["effort"])
    betas = str(get_args(anthropic_beta_param.AnthropicBetaParam))
    for pinned, _, names in ROWS:
        body = json.loads(request_head(pinned, 1) + b"]}")
        assert set(body) <= set(known)
        assert repr(body.get("output_config", {}).get("effort", "low")) in efforts
        assert repr(body.get("speed", "fast")) in str(known["speed"])
        assert all(repr(name) in betas for name in names)
    efforts_asked = {pinned.model_options.effort for pinned, _, _ in ROWS}
    speeds_asked = {pinned.model_options.speed for pinned, _, _ in ROWS}
    assert efforts_asked == set(model_pb2.ModelEffort.values())
    assert speeds_asked == set(model_pb2.ModelSpeed.values())


def test_the_pins_name_what_the_request_was_made_with() -> None:
    pins = [json.loads(recipe.frame_of(pinned).pins) for pinned, _, _ in ROWS]
    names = ("effort", "speed", "inference_geo", "automatic_prompt_caching", "betas")
    assert {name: pins[-1][name] for name in names} == {
        "effort": model_pb2.MODEL_EFFORT_LOW,
        "speed": model_pb2.MODEL_SPEED_FAST,
        "inference_geo": "us",
        "automatic_prompt_caching": True,
        "betas": [FAST_MODE],
    }
    assert len({json.dumps(one) for one in pins}) == len(pins)
    assert all(one["materializer"] == materializer.VERSION for one in pins)


async def test_rounds_with_options_begin_with_the_bytes_before_and_are_built_again(
    bench: Bench,
) -> None:
    pinned = runtime(profile=CACHING, model_options=ROWS[-1][0].model_options)
    await bench.ask()
    first = await bench.prepare(pinned=pinned)
    await bench.answer(text("I will"), use("a"), uses=(1,))
    await bench.results(_1=projection("done"))
    second = await bench.prepare(round=1, pinned=pinned)
    assert list(first.betas) == list(second.betas) == [FAST_MODE]
    assert second.body.startswith(first.body.removesuffix(b'],"stream":true}'))
    plain = await bench.prepare(round=1, number=2)
    assert not plain.betas
    assert plain.snapshot.request_digest != second.snapshot.request_digest
    for one in (first, second, plain):
        assert await bench.rebuild(one.snapshot.id) == one.body


async def test_a_snapshot_of_an_older_version_keeps_its_bytes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 1 asked for no caching and knew no options; its head is a stored part."""

    def version_1(pinned: runtime_pb2.SessionRuntime, output_tokens_max: int) -> bytes:
        plain = runtime_pb2.SessionRuntime(
            model=pinned.model, system=pinned.system, tools=pinned.tools
        )
        return request_head(plain, output_tokens_max)

    pinned = runtime(profile=CACHING, model_options=ROWS[-1][0].model_options)
    await bench.ask()
    with monkeypatch.context() as patched:
        patched.setattr(materializer, "request_head", version_1)
        patched.setattr(materializer, "VERSION", 1)
        old = await bench.prepare(pinned=pinned)
    assert b"cache_control" not in old.body
    assert await bench.rebuild(old.snapshot.id) == old.body
    bench.service = bench.another()  # a version changes with the process
    again = await bench.service.PrepareRequest(bench.request(pinned=pinned), None)
    assert again.prepared.body == old.body
    new = await bench.prepare(number=2, pinned=pinned)
    assert b'"cache_control":{"type":"ephemeral"}' in new.body
