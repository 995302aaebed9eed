"""Who executes a tool of a new session: everything that cannot be served refuses it by name."""

from typing import Any, cast

import pytest
from counterfoil.journal.v1.journal_pb2 import Outcome
from counterfoil.registry.v1 import agent_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import model_pb2
from counterfoil.types.v1 import runtime_pb2 as rt
from counterfoil.types.v1.capability_pb2 import CapabilityProfile

from foundation.errors import Failure
from foundation.storage import ConfigurationError
from services.tools.platform import PlatformTool, PlatformTools, ToolCall, load_module, text_outcome
from services.tools.profiles import PROFILES, choose
from services.tools.resolution import BUILT_IN_TOOLS, resolve
from services.tools.service import ToolServicer

OFFLINE = PROFILES["offline"]
ALLOW, ASK, AUTO = (
    pb.PERMISSION_POLICY_TYPE_ALWAYS_ALLOW,
    pb.PERMISSION_POLICY_TYPE_ALWAYS_ASK,
    pb.PERMISSION_POLICY_TYPE_AUTO,
)


async def run(call: ToolCall) -> Outcome:
    return text_outcome("done")


def platform_tool(name: str, **fields: Any) -> PlatformTool:
    return PlatformTool(name, "does it", b'{"type":"object"}', run, **fields)


def custom(name: str) -> pb.Tool:
    schema = b'{ "type":"object" }'
    return pb.Tool(custom=pb.CustomTool(name=name, description="d", input_schema=schema))


def toolset(*enabled: str, policy: pb.PermissionPolicyType.ValueType = ALLOW) -> pb.Tool:
    chosen = pb.PermissionPolicy(type=policy)
    return pb.Tool(
        agent_toolset=pb.AgentToolset(
            default_config=pb.ToolsetDefaults(enabled=False, permission_policy=chosen),
            configs=[
                pb.ToolConfig(name=name, enabled=True, permission_policy=chosen) for name in enabled
            ],
        )
    )


def agent(*tools: pb.Tool, **fields: Any) -> pb.Agent:
    return pb.Agent(name="a", model=pb.ModelConfig(id="m"), system="s", tools=tools, **fields)


def refusal(agent: pb.Agent, *platform: PlatformTool) -> Failure:
    with pytest.raises(Failure) as failure:
        resolve(agent, platform, OFFLINE)
    assert failure.value.reason == reasons.ERROR_REASON_UNSUPPORTED
    return failure.value


def test_custom_tools_belong_to_the_client_and_are_never_asked_for() -> None:
    runtime = resolve(agent(custom("b"), custom("a")), (), OFFLINE)
    assert [tool.name for tool in runtime.tools] == ["b", "a"]
    assert {tool.owner for tool in runtime.tools} == {rt.TOOL_OWNER_CLIENT_CUSTOM}
    assert {tool.policy for tool in runtime.tools} == {rt.TOOL_POLICY_ALWAYS_ALLOW}
    assert runtime.tools[0].input_schema == b'{ "type":"object" }'
    assert (runtime.model, runtime.system, runtime.profile.id) == ("m", "s", "offline")


def test_a_toolset_that_nobody_serves_names_its_tools() -> None:
    failure = refusal(agent(custom("x"), toolset("bash", "grep")))
    assert failure.text == (
        "agent.tools.1: no owner serves the built-in tools here yet (bash, grep)"
    )
    everything = pb.Tool(
        agent_toolset=pb.AgentToolset(default_config=pb.ToolsetDefaults(enabled=True))
    )
    assert all(name in refusal(agent(everything)).message for name in BUILT_IN_TOOLS)


def test_a_toolset_whose_tools_are_off_needs_no_owner() -> None:
    mcp = pb.McpToolset(mcp_server_name="s", default_config=pb.ToolsetDefaults(enabled=False))
    assert not resolve(agent(toolset(), pb.Tool(mcp_toolset=mcp)), (), OFFLINE).tools


def test_an_mcp_toolset_names_its_server() -> None:
    mcp = pb.McpToolset(mcp_server_name="crm", default_config=pb.ToolsetDefaults(enabled=True))
    failure = refusal(agent(pb.Tool(mcp_toolset=mcp)))
    assert failure.path == "agent.tools.0"
    assert "'crm'" in failure.message


def test_skills_are_refused_by_name() -> None:
    failure = refusal(agent(skills=[pb.Skill(type="anthropic", skill_id="xlsx")]))
    assert failure.text == "agent.skills: skills are not mounted here yet (xlsx)"


def test_a_platform_tool_is_bound_besides_the_agents_own() -> None:
    tool = platform_tool("charge", version="7", policy=rt.TOOL_POLICY_ALWAYS_ASK)
    runtime = resolve(agent(custom("x")), (tool,), OFFLINE)
    assert [one.name for one in runtime.tools] == ["x", "charge"]
    bound = runtime.tools[1]
    assert bound.owner == rt.TOOL_OWNER_PLATFORM_MANAGED
    assert (bound.policy, bound.version) == (rt.TOOL_POLICY_ALWAYS_ASK, "7")


@pytest.mark.parametrize(
    ("asked", "pinned"), [(ALLOW, rt.TOOL_POLICY_ALWAYS_ALLOW), (ASK, rt.TOOL_POLICY_ALWAYS_ASK)]
)
def test_a_built_in_tool_of_the_platform_runs_under_the_agents_policy(
    asked: pb.PermissionPolicyType.ValueType, pinned: rt.ToolPolicy.ValueType
) -> None:
    runtime = resolve(agent(toolset("bash", policy=asked)), (platform_tool("bash"),), OFFLINE)
    assert [(tool.name, tool.policy) for tool in runtime.tools] == [("bash", pinned)]


def test_nobody_decides_auto() -> None:
    failure = refusal(agent(toolset("bash", policy=AUTO)), platform_tool("bash"))
    assert failure.path == "agent.tools.0"
    assert "auto" in failure.message


def test_two_owners_of_one_name_are_refused() -> None:
    assert refusal(agent(custom("charge")), platform_tool("charge")).path == "agent.tools.0"


def test_a_session_pins_at_most_256_tools() -> None:
    tools = [custom(f"t{n}") for n in range(256)]
    assert len(resolve(agent(*tools), (), OFFLINE).tools) == 256
    assert refusal(agent(*tools), platform_tool("one_more")).path == "agent.tools"


@pytest.mark.parametrize(
    ("name", "base_url", "chosen"),
    [
        ("", "", "offline"),
        ("", "http://localhost:1", "conservative"),
        ("", "https://api.anthropic.com", "conservative"),
        ("anthropic", "", "anthropic"),
        ("offline", "http://localhost:1", "offline"),
    ],
)
def test_the_profile_comes_from_configuration_never_from_a_hostname(
    name: str, base_url: str, chosen: str
) -> None:
    assert choose(name, base_url).id == chosen


@pytest.mark.parametrize("window_tokens", [0, 6_000])
def test_the_deployments_window_is_pinned_with_the_profile(window_tokens: int) -> None:
    chosen = choose("anthropic", "", window_tokens)
    expected = CapabilityProfile(window_tokens=window_tokens)
    expected.MergeFrom(PROFILES["anthropic"])
    assert chosen == expected
    assert PROFILES["anthropic"].window_tokens == 0
    assert resolve(agent(), [], chosen).profile.window_tokens == window_tokens


def test_an_unknown_profile_stops_the_process() -> None:
    with pytest.raises(ConfigurationError, match="anthropic, offline, conservative"):
        choose("antropic", "")


def test_every_profile_sends_unknown_blocks_back() -> None:
    assert all(profile.preserves_unknown_content_blocks for profile in PROFILES.values())


def test_platform_tools_come_from_a_module() -> None:
    tools = PlatformTools()
    load_module(tools, "tests.services.tools.sample_tools")
    assert [tool.name for tool in tools.all()] == ["sample"]
    assert tools.find("sample", "1") is not None
    assert tools.find("sample", "2") is None
    with pytest.raises(ConfigurationError, match="twice"):
        load_module(tools, "tests.services.tools.sample_tools")


@pytest.mark.parametrize("name", ["tests.services.tools.absent", "json"])
def test_a_module_without_register_stops_the_process(name: str) -> None:
    with pytest.raises(ConfigurationError, match="COUNTERFOIL_TOOLS_MODULE"):
        load_module(PlatformTools(), name)


def test_a_session_pins_how_its_model_is_asked() -> None:
    model = pb.ModelConfig(
        id="m",
        effort=pb.Effort(type=model_pb2.MODEL_EFFORT_MAX),
        speed=model_pb2.MODEL_SPEED_FAST,
        inference_geo="us",
    )
    options = resolve(pb.Agent(name="a", model=model), (), OFFLINE).model_options
    assert options == model_pb2.ModelOptions(
        effort=model_pb2.MODEL_EFFORT_MAX, speed=model_pb2.MODEL_SPEED_FAST, inference_geo="us"
    )
    plain = pb.Agent(name="a", model=pb.ModelConfig(id="m"))
    assert not resolve(plain, (), OFFLINE).HasField("model_options")


ARCHIVE = platform_tool("read_archive")


def test_the_archive_is_bound_last_where_another_tool_is() -> None:
    runtime = resolve(agent(custom("x")), (platform_tool("charge"),), OFFLINE, ARCHIVE)
    assert [tool.name for tool in runtime.tools] == ["x", "charge", "read_archive"]
    assert runtime.tools[2].owner == rt.TOOL_OWNER_PLATFORM_MANAGED
    assert not resolve(agent(), (), OFFLINE, ARCHIVE).tools
    without = resolve(agent(custom("x")), (), OFFLINE, None)
    assert [tool.name for tool in without.tools] == ["x"]


def test_a_custom_tool_of_the_archives_name_wins_and_there_is_no_archive() -> None:
    (bound,) = resolve(agent(custom("read_archive")), (), OFFLINE, ARCHIVE).tools
    assert bound.owner == rt.TOOL_OWNER_CLIENT_CUSTOM


def test_the_archive_takes_no_tool_of_the_agent_its_place() -> None:
    many = [custom(f"t{number}") for number in range(256)]
    tools = resolve(agent(*many), (), OFFLINE, ARCHIVE).tools
    assert [tool.name for tool in tools] == [one.custom.name for one in many]


def test_no_deployment_registers_a_tool_of_the_archives_name() -> None:
    tools = PlatformTools()
    tools.register(ARCHIVE)
    with pytest.raises(ConfigurationError, match="read_archive"):
        ToolServicer(tools, OFFLINE, cast(Any, None), cast(Any, None))
