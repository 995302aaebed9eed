"""What an agent or environment may say, and what an answer says in full. Pure."""

import json
from typing import Any

import pytest
from counterfoil.registry.v1 import agent_pb2, environment_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from google.protobuf.field_mask_pb2 import FieldMask
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import Failure
from foundation.json import decode, encode
from services.registry.agents import new_agent, overridden, updated
from services.registry.environments import new_environment
from services.registry.input_schema import check_input_schema


def agent_of(**body: Any) -> agent_pb2.Agent:
    raw = json.dumps({"name": "a", "model": "m", **body}).encode()
    return new_agent(decode(agent_pb2.CreateAgentRequest, raw), "agent_1")


def environment_of(**body: Any) -> environment_pb2.Environment:
    raw = json.dumps({"name": "e", **body}).encode()
    return new_environment(decode(environment_pb2.CreateEnvironmentRequest, raw), "env_1")


def custom(name: str = "decide", **schema: Any) -> dict[str, Any]:
    return {
        "type": "custom",
        "name": name,
        "description": "d",
        "input_schema": {"type": "object", **schema},
    }


MCP = {"type": "mcp_toolset", "mcp_server_name": "s"}
SERVER = {"type": "url", "name": "s", "url": "https://mcp.example/x"}
BUILT_INS = {"type": "agent_toolset_20260401"}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"tools": [custom(), custom()]}, "tools.1.name"),
        ({"tools": [custom("bash")]}, "tools.0.name"),
        ({"tools": [custom("web_search")]}, "tools.0.name"),
        ({"tools": [custom("mcp__x")]}, "tools.0.name"),
        ({"tools": [custom(), custom("b", oneOf=[])]}, "tools.1.input_schema.oneOf"),
        ({"tools": [custom(anyOf=[])]}, "tools.0.input_schema.anyOf"),
        ({"tools": [custom(allOf=[])]}, "tools.0.input_schema.allOf"),
        (
            {"tools": [custom(properties={"a": {"items": [{"$ref": "#"}]}})]},
            "tools.0.input_schema.properties.a.items.0.$ref",
        ),
        ({"tools": [custom(properties={"a b": {}})]}, "tools.0.input_schema.properties"),
        ({"tools": [custom(properties=[])]}, "tools.0.input_schema.properties"),
        ({"tools": [custom(required="a")]}, "tools.0.input_schema.required"),
        ({"tools": [custom(required=[1])]}, "tools.0.input_schema.required"),
        ({"tools": [custom(type="array")]}, "tools.0.input_schema.type"),
        ({"tools": [MCP]}, "tools.0.mcp_server_name"),
        ({"tools": [MCP, MCP], "mcp_servers": [SERVER]}, "tools.1.mcp_server_name"),
        ({"mcp_servers": [SERVER]}, "mcp_servers.0"),
        ({"mcp_servers": [SERVER, SERVER], "tools": [MCP]}, "mcp_servers.1.name"),
        ({"mcp_servers": [{**SERVER, "url": "file:///x"}], "tools": [MCP]}, "mcp_servers.0.url"),
        (
            {"mcp_servers": [{**SERVER, "url": "http://[x"}], "tools": [MCP]},
            "mcp_servers.0.url",
        ),
        (
            {
                "tools": [{**MCP, "configs": [{"name": "x"}, {"name": "x"}]}],
                "mcp_servers": [SERVER],
            },
            "tools.0.configs.1.name",
        ),
        ({"tools": [BUILT_INS, BUILT_INS]}, "tools.1"),
        ({"tools": [{**BUILT_INS, "configs": [{"name": "sh"}]}]}, "tools.0.configs.0.name"),
        (
            {"tools": [{**BUILT_INS, "configs": [{"name": "bash", "type": "read"}]}]},
            "tools.0.configs.0.type",
        ),
        ({"tools": [custom(f"t{n}") for n in range(249)] + [BUILT_INS]}, "tools"),
    ],
)
def test_contradictions_are_refused_with_their_path(body: dict[str, Any], path: str) -> None:
    with pytest.raises(Failure) as failure:
        agent_of(**body)
    assert failure.value.reason == reasons.ERROR_REASON_INVALID_FIELD
    assert failure.value.path == path


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("m", {"id": "m", "effort": None, "inference_geo": None, "speed": None}),
        (
            {"id": "m", "effort": "xhigh", "speed": "fast", "inference_geo": "us"},
            {"id": "m", "effort": {"type": "xhigh"}, "inference_geo": "us", "speed": "fast"},
        ),
        (
            {"id": "m", "effort": {"type": "low"}, "speed": None, "inference_geo": None},
            {"id": "m", "effort": {"type": "low"}, "inference_geo": None, "speed": None},
        ),
    ],
)
def test_a_model_is_shown_with_its_options_in_full(model: Any, shown: Any) -> None:
    assert decoded(agent_of(model=model).model) == shown


def test_toolsets_come_back_complete() -> None:
    agent = agent_of(
        tools=[
            {
                **BUILT_INS,
                "default_config": {"enabled": False},
                "configs": [
                    {"name": "read"},
                    {"name": "bash", "enabled": True, "permission_policy": {"type": "always_ask"}},
                ],
            },
            MCP,
        ],
        mcp_servers=[SERVER],
    )
    allow, ask = {"type": "always_allow"}, {"type": "always_ask"}
    assert [decoded(tool) for tool in agent.tools] == [
        {
            **BUILT_INS,
            "configs": [
                {"name": "read", "type": "read", "enabled": False, "permission_policy": allow},
                {"name": "bash", "type": "bash", "enabled": True, "permission_policy": ask},
            ],
            "default_config": {"enabled": False, "permission_policy": allow},
        },
        {**MCP, "configs": [], "default_config": {"enabled": True, "permission_policy": ask}},
    ]


def decoded(message: Any) -> Any:
    return json.loads(encode(message))


def test_an_input_schema_keeps_its_bytes() -> None:
    raw = b'{ "type":"object",  "properties":{"n":{"maximum":1.10e400}} }'
    body = b'{"name":"a","model":"m","tools":[{"type":"custom","name":"t","description":"d",'
    request = decode(agent_pb2.CreateAgentRequest, body + b'"input_schema":' + raw + b"}]}")
    assert new_agent(request, "agent_1").tools[0].custom.input_schema == raw


@given(st.binary(max_size=64) | st.text(max_size=64).map(str.encode))
def test_any_bytes_as_a_schema_are_judged_not_crashed_on(raw: bytes) -> None:
    path = "(accepted)"
    try:
        check_input_schema(raw, "tools.0.input_schema")
    except Failure as failure:
        path = failure.path
    assert path.startswith(("tools.0.input_schema", "(accepted)"))


def test_an_empty_text_is_no_text() -> None:
    agent = agent_of(description="", system="")
    assert not agent.HasField("description")
    assert not agent.HasField("system")


def test_an_environment_defaults_to_an_unrestricted_cloud() -> None:
    packages = {
        "type": "packages",
        **{manager: [] for manager in ("apt", "cargo", "gem", "go", "npm", "pip")},
    }
    expected = {"type": "cloud", "networking": {"type": "unrestricted"}, "packages": packages}
    assert decoded(environment_of().config) == expected
    assert decoded(environment_of(config={"type": "cloud"}).config) == expected


def test_limited_networking_defaults_to_nothing_allowed() -> None:
    config = environment_of(config={"type": "cloud", "networking": {"type": "limited"}}).config
    assert decoded(config)["networking"] == {
        "type": "limited",
        "allow_mcp_servers": False,
        "allow_package_managers": False,
        "allowed_hosts": [],
    }


def test_a_self_hosted_environment_has_no_settings() -> None:
    assert decoded(environment_of(config={"type": "self_hosted"}).config) == {"type": "self_hosted"}


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"packages": {"pip": ["x", "--evil"]}}, "config.packages.pip.1"),
        ({"packages": {"apt": ["a\nb"]}}, "config.packages.apt.0"),
        (
            {"packages": {"npm": ["x"]}, "networking": {"type": "limited"}},
            "config.packages",
        ),
        (
            {"networking": {"type": "limited", "allowed_hosts": ["a.example", "https://b"]}},
            "config.networking.allowed_hosts.1",
        ),
    ],
)
def test_environment_settings_that_cannot_hold_are_refused(
    config: dict[str, Any], path: str
) -> None:
    with pytest.raises(Failure) as failure:
        environment_of(config={"type": "cloud", **config})
    assert failure.value.path == path


READ_OFF = {**BUILT_INS, "configs": [{"name": "read", "enabled": False}]}
PDF = {"type": "anthropic", "skill_id": "pdf"}
WEB = "tools.0.configs.0"


def built_in(**config: Any) -> dict[str, Any]:
    return {"tools": [{**BUILT_INS, "configs": [config]}, custom()]}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"skills": [PDF]}, "skills"),
        ({"skills": [PDF], "tools": [READ_OFF]}, "skills"),
        (built_in(name="bash", allowed_domains=["a"]), f"{WEB}.allowed_domains"),
        (built_in(name="web_search", max_content_tokens=1), f"{WEB}.max_content_tokens"),
        (built_in(name="web_fetch", user_location={}), f"{WEB}.user_location"),
        (
            built_in(name="web_fetch", allowed_domains=["a"], blocked_domains=["b"]),
            f"{WEB}.blocked_domains",
        ),
        (built_in(name="web_fetch", allowed_domains=["a", "b/c"]), f"{WEB}.allowed_domains.1"),
        (built_in(name="web_search", blocked_domains=["https://a"]), f"{WEB}.blocked_domains.0"),
        (
            built_in(
                name="web_fetch",
                url_sources=dict.fromkeys(
                    ("client_tool_results", "server_tool_results", "user_input"), "none"
                ),
            ),
            f"{WEB}.url_sources",
        ),
        (
            built_in(name="web_fetch", url_sources={"client_tool_results": "only"}),
            f"{WEB}.url_sources.client_tool_results.tools",
        ),
        (
            built_in(
                name="web_fetch",
                url_sources={"server_tool_results": {"type": "except", "tools": [{"name": "x"}]}},
            ),
            f"{WEB}.url_sources.server_tool_results.tools.0.name",
        ),
        ({"multiagent": {"type": "coordinator"}}, "multiagent"),
    ],
)
def test_skills_and_web_tools_need_what_they_use(body: dict[str, Any], path: str) -> None:
    with pytest.raises(Failure) as failure:
        agent_of(**body)
    assert (failure.value.reason, failure.value.path) == (
        reasons.ERROR_REASON_INVALID_FIELD,
        path,
    )


def overrides(*paths: str, **fields: Any) -> agent_pb2.AgentOverrides:
    return agent_pb2.AgentOverrides(update_mask=FieldMask(paths=paths), **fields)


def test_overrides_replace_what_the_mask_names_and_are_completed() -> None:
    agent = agent_of(system="s", tools=[BUILT_INS], skills=[PDF], description="d")
    toolset = agent_pb2.Tool(agent_toolset=agent_pb2.AgentToolset())
    found = overridden(agent, overrides("system", "skills", "tools", tools=[toolset]))
    assert not found.HasField("system")
    assert (len(found.skills), found.description, found.version) == (0, "d", 1)
    assert found.tools[0].agent_toolset.default_config.enabled
    model = agent_pb2.ModelConfig(id="n")
    assert overridden(agent, agent_pb2.AgentOverrides(model=model)).model == model
    assert overridden(agent, overrides()) == agent


def test_overrides_that_contradict_the_agent_are_refused_below_agent() -> None:
    agent = agent_of(tools=[BUILT_INS], skills=[PDF])
    with pytest.raises(Failure) as failure:
        overridden(agent, overrides("tools"))
    assert failure.value.path == "agent.skills"


def test_a_schema_that_means_the_same_is_no_change() -> None:
    agent = agent_of(tools=[custom(properties={"a": {"type": "number", "maximum": 1.5}})])
    tool = agent_pb2.Tool()
    tool.CopyFrom(agent.tools[0])
    tool.custom.input_schema = (
        b'{"properties":{"a":{"maximum":1.5, "type":"number"}},"type":"object"}'
    )
    assert updated(agent, agent_pb2.UpdateAgentRequest(tools=[tool])) is None
    tool.custom.input_schema = tool.custom.input_schema.replace(b"1.5", b"1.50")
    assert updated(agent, agent_pb2.UpdateAgentRequest(tools=[tool])) is not None
