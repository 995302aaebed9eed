"""Who may call what, over real sockets: credentials, foreign ids, smuggled fields."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from counterfoil.context.v1 import context_pb2, snapshots_pb2
from counterfoil.files.v1 import artifacts_pb2
from counterfoil.journal.v1 import journal_pb2
from counterfoil.ledger.v1 import session_pb2, turn_pb2
from counterfoil.registry.v1 import agent_pb2, environment_pb2, registry_pb2
from counterfoil.tools.v1 import tools_pb2
from counterfoil.transcript.v1 import transcript_pb2
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from foundation.errors import Failure, name_of
from foundation.rpc.admission import is_public
from foundation.rpc.status import TRANSPORT
from foundation.settings import DEVELOPMENT_KEY
from foundation.storage import Database, SealRing
from gateway.app import CONTRACTS
from gateway.routes import routes_of
from services.registry.bootstrap import ensure_workspace
from tests.support.chat import Chat, custom_tool, message, result
from tests.support.model import script, use
from tests.support.system import System

SERVICES: dict[str, tuple[Any, ...]] = {
    "registry": (agent_pb2, environment_pb2, registry_pb2),
    "ledger": (session_pb2, turn_pb2),
    "transcript": (transcript_pb2,),
    "journal": (journal_pb2,),
    "context": (context_pb2, snapshots_pb2),
    "files": (artifacts_pb2,),
    "tools": (tools_pb2,),
}
OTHER_KEY = "cf-other-workspace-key"
SOME = "sesn_00000000000000000000000000"


def methods() -> Iterator[tuple[str, MethodDescriptor]]:
    """Every method of every contract, with the service that serves it."""
    for owner, modules in SERVICES.items():
        for module in modules:
            for service in module.DESCRIPTOR.services_by_name.values():
                for method in service.methods:
                    yield owner, method


async def reason_of(
    channel: Any, method: MethodDescriptor, request: Message, repeats: int = 3
) -> str:
    """How a call fails; "OK" when it does not."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    answer = GetMessageClass(method.output_type)
    kind = channel.unary_unary
    given: Any = request
    if method.server_streaming:
        kind = channel.stream_stream if method.client_streaming else channel.unary_stream
    if method.client_streaming:
        given = _one(request)
    call = kind(
        path,
        request_serializer=type(request).SerializeToString,
        response_deserializer=answer.FromString,
    )
    try:
        made = call(given)
        await (anext(aiter(made)) if method.server_streaming else made)
    except Failure as failure:
        if TRANSPORT in failure.metadata and repeats:
            # gRPC may reset a stream that is refused while its request is still on its way: then
            # nobody said anything about credentials.
            return await reason_of(channel, method, request, repeats - 1)
        return name_of(failure.reason)
    return "OK"


async def _one(request: Message) -> Any:
    yield request


@pytest.fixture(scope="module")
def expected() -> dict[bool, dict[str, str]]:
    """Public or not → credential → how a call fails before anything of it is looked at."""
    none = {"none": "UNAUTHENTICATED", "unknown": "UNAUTHENTICATED"}
    return {
        True: {**none, "service": "UNAUTHENTICATED"},
        False: {**none, "workspace": "PERMISSION_DENIED"},
    }


async def test_every_method_asks_for_the_right_credential(
    running_system: System, expected: dict[bool, dict[str, str]]
) -> None:
    system = running_system
    credentials = {
        "none": "",
        "unknown": "cf-nobody-issued-this",
        "workspace": DEVELOPMENT_KEY,
        "service": system.service_key,
    }
    seen = 0
    for name, credential in credentials.items():
        channels = {owner: system.channel(owner, credential) for owner in SERVICES}
        for owner, method in methods():
            request = GetMessageClass(method.input_type)()
            wanted = expected[is_public(method.containing_service)].get(name)
            found = await reason_of(channels[owner], method, request) if wanted else None
            assert found == wanted, f"{method.full_name} with {name}"
            seen += 1
    assert seen > 100


async def test_the_right_credential_is_admitted(running_system: System) -> None:
    system = running_system
    public, internal = system.channel("ledger", DEVELOPMENT_KEY), system.channel("ledger")
    methods_of = session_pb2.DESCRIPTOR.services_by_name["SessionService"].methods_by_name
    get = session_pb2.GetSessionRequest(session_id=SOME)
    assert await reason_of(public, methods_of["GetSession"], get) == "NOT_FOUND"
    turns = turn_pb2.DESCRIPTOR.services_by_name["TurnService"].methods_by_name
    release = turn_pb2.ReleaseTurnRequest(turn_id="turn_00000000000000000000000000")
    assert await reason_of(internal, turns["ReleaseTurn"], release) == "NOT_FOUND"


def routes() -> list[tuple[str, str]]:
    """Every REST route: verb, and a path with ids that nobody has."""
    found: list[tuple[str, str]] = []
    for route in routes_of(CONTRACTS):
        parts = [SOME if part.startswith("{") else part for part in route.template.split("/")]
        found.append((route.verb, "/".join(parts)))
    return found


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
async def test_rest_takes_workspace_keys_only(running_system: System, header: str) -> None:
    system = running_system
    http = system.http(None)
    for verb, path in routes():
        for credential in ("", "cf-nobody-issued-this", system.service_key):
            value = f"Bearer {credential}" if header == "authorization" else credential
            sent = {header: value} if credential else {}
            answer = await http.request(verb, path, headers=sent, json=None)
            body = answer.json()
            # What cannot be read is refused before anybody is asked who sent it.
            assert answer.status_code in (400, 401), (verb, path, answer.text)
            assert body["type"] == "error"
            assert body["request_id"] == answer.headers["request-id"]
            assert system.service_key not in answer.text
            if verb in ("GET", "DELETE"):
                assert answer.status_code == 401, (verb, path)
                assert body["error"]["type"] == "authentication_error"
    for path in ("/healthz", "/readyz"):
        assert (await http.get(path)).status_code == 200


async def test_nothing_is_done_without_a_credential(running_system: System) -> None:
    system = running_system
    chat = await Chat.open(system)
    before = await chat.history()
    http = system.http(None)
    answer = await http.post(f"/v1/sessions/{chat.id}/events", json={"events": [message("hello")]})
    assert answer.status_code == 401
    assert (await http.delete(f"/v1/sessions/{chat.id}")).status_code == 401
    assert await chat.history() == before


@pytest.fixture
async def other(running_system: System) -> httpx2.AsyncClient:
    """A client of another workspace on the same system."""
    system = running_system
    dsn = system.environment["COUNTERFOIL_REGISTRY_DATABASE_URL"]
    database = await Database.open(dsn, service="registry")
    try:
        ring = SealRing.load(system.folder / "seal_keys.json")
        await ensure_workspace(database, ring, "other", OTHER_KEY)
    finally:
        await database.close()
    return system.http(OTHER_KEY)


async def test_foreign_ids_are_404(running_system: System, other: httpx2.AsyncClient) -> None:
    system = running_system
    chat = await Chat.open(system, tools=[custom_tool("decide")])
    events = await chat.say(script({"content": [use("decide", text="a")]}))
    (use_id,) = events[-1]["stop_reason"]["event_ids"]
    before = await chat.history()
    session, agent, environment = chat.id, chat.agent_id, chat.environment_id
    snapshots = await system.http().get(f"/v1/sessions/{session}/context_snapshots")
    snapshot = snapshots.json()["data"][0]["id"]
    for verb, path, body in (
        ("GET", f"/v1/sessions/{session}", None),
        ("GET", f"/v1/sessions/{session}/events", None),
        ("GET", f"/v1/sessions/{session}/events/stream", None),
        ("GET", f"/v1/sessions/{session}/threads", None),
        ("GET", f"/v1/sessions/{session}/context_snapshots", None),
        ("GET", f"/v1/sessions/{session}/context_snapshots/{snapshot}", None),
        ("GET", f"/v1/sessions/{session}/context_snapshots/{snapshot}/request", None),
        ("GET", f"/v1/sessions/{session}/context_snapshots/{snapshot}/diff/{snapshot}", None),
        ("POST", f"/v1/sessions/{session}/events", {"events": [message("mine")]}),
        ("POST", f"/v1/sessions/{session}/events", {"events": [result(use_id, "mine")]}),
        ("POST", f"/v1/sessions/{session}/events", {"events": [{"type": "user.interrupt"}]}),
        ("DELETE", f"/v1/sessions/{session}", None),
        ("GET", f"/v1/agents/{agent}", None),
        ("POST", f"/v1/agents/{agent}/archive", None),
        ("GET", f"/v1/environments/{environment}", None),
        ("DELETE", f"/v1/environments/{environment}", None),
    ):
        answer = await other.request(verb, path, json=body)
        if answer.status_code == 405:
            continue  # a route of a later issue
        assert answer.status_code == 404, (verb, path, answer.text)
        nowhere = path.replace(session, SOME) if session in path else None
        if nowhere is not None:
            unknown = await other.request(verb, nowhere, json=body)
            same = answer.json()["error"]["message"].replace(session, SOME)
            assert unknown.json()["error"]["message"] == same, "the two tell nothing apart"
    made = await other.post("/v1/sessions", json={"agent": agent, "environment_id": environment})
    assert made.status_code in (400, 404)
    assert await chat.history() == before


async def test_an_answer_of_another_session_is_refused(running_system: System) -> None:
    system = running_system
    one = await Chat.open(system, tools=[custom_tool("decide")])
    two = await Chat.open(system, tools=[custom_tool("decide")])
    steps = script({"content": [use("decide", text="a")]})
    uses = [(await chat.say(steps))[-1]["stop_reason"]["event_ids"][0] for chat in (one, two)]
    before = await one.history()
    answer = await system.http().post(
        f"/v1/sessions/{one.id}/events", json={"events": [result(uses[1], "crossed")]}
    )
    assert answer.status_code == 400
    assert await one.history() == before


SMUGGLED = {
    "workspace_id": "wrkspc_00000000000000000000000000",
    "session_id": SOME,
    "api_key_id": "apikey_1",
    "idempotency_key": "x",
}


@pytest.mark.parametrize("name", SMUGGLED)
async def test_fields_that_only_the_server_binds_are_refused_by_name(
    running_system: System, name: str
) -> None:
    system = running_system
    chat = await Chat.open(system)
    http = system.http()
    bodies: list[tuple[str, dict[str, Any]]] = [
        (f"/v1/sessions/{chat.id}/events", {"events": [message("x")]}),
        ("/v1/sessions", {"agent": chat.agent_id, "environment_id": chat.environment_id}),
        ("/v1/agents", {"name": "n", "model": "claude-sonnet-4-5"}),
        ("/v1/environments", {"name": f"smuggled {name}"}),
    ]
    for path, body in bodies:
        answer = await http.post(path, json={**body, name: SMUGGLED[name]})
        assert answer.status_code == 400, (path, answer.text)
        assert name in answer.json()["error"]["message"], path
    assert await chat.history() == []


@pytest.mark.parametrize(
    "extra",
    [
        {"id": "sevt_00000000000000000000000000"},
        {"processed_at": "2020-01-01T00:00:00Z"},
        {"session_thread_id": "sthr_00000000000000000000000000"},
    ],
    ids=lambda extra: next(iter(extra)),
)
async def test_events_carry_nothing_that_the_ledger_decides(
    running_system: System, extra: dict[str, str]
) -> None:
    chat = await Chat.open(running_system)
    answer = await running_system.http().post(
        f"/v1/sessions/{chat.id}/events", json={"events": [{**message("x"), **extra}]}
    )
    assert answer.status_code == 400
    assert f"events.0.{next(iter(extra))}" in answer.json()["error"]["message"]
    assert await chat.history() == []


async def test_a_client_cannot_speak_for_the_agent(running_system: System) -> None:
    chat = await Chat.open(running_system)
    for kind in ("agent.message", "session.status_idle", "agent.custom_tool_use", "user.nonsense"):
        answer = await running_system.http().post(
            f"/v1/sessions/{chat.id}/events", json={"events": [{**message("x"), "type": kind}]}
        )
        assert answer.status_code == 400
        assert kind in answer.json()["error"]["message"]
    assert await chat.history() == []


async def test_health_and_reflection_need_no_credential(running_system: System) -> None:
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    async with grpc.aio.insecure_channel(running_system.addresses["ledger"]) as channel:
        untyped: Any = channel
        health: Any = health_pb2_grpc.HealthStub(untyped)
        answer = await health.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub(untyped)
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        call = reflection.ServerReflectionInfo(iter([asked]))
        listed = await anext(aiter(call))
        call.cancel()
    names = {service.name for service in listed.list_services_response.service}
    assert "counterfoil.ledger.v1.SessionService" in names
