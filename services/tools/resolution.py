"""Decides what a new session may use: owner, version and policy of every tool. Pure.

Nothing is quietly left out or allowed: a tool that nobody executes here, or a policy that nobody
can honour, refuses the session and names the tool.
"""

from collections.abc import Iterable, Sequence

from counterfoil.registry.v1 import agent_pb2
from counterfoil.types.v1 import error_reason_pb2 as reasons
from counterfoil.types.v1 import model_pb2, runtime_pb2
from counterfoil.types.v1.capability_pb2 import CapabilityProfile

from foundation.errors import Failure
from services.tools.platform import PlatformTool, Policy

BUILT_IN_TOOLS = ("bash", "edit", "read", "write", "glob", "grep", "web_fetch", "web_search")
_TOOLS_MAX = 256
_POLICIES: dict[int, Policy] = {
    agent_pb2.PERMISSION_POLICY_TYPE_ALWAYS_ALLOW: runtime_pb2.TOOL_POLICY_ALWAYS_ALLOW,
    agent_pb2.PERMISSION_POLICY_TYPE_ALWAYS_ASK: runtime_pb2.TOOL_POLICY_ALWAYS_ASK,
}


def resolve(
    agent: agent_pb2.Agent,
    platform: Sequence[PlatformTool],
    profile: CapabilityProfile,
    archive: PlatformTool | None = None,
) -> runtime_pb2.SessionRuntime:
    """What a session of `agent` pins: the agent's tools in order, then the platform's.

    A built-in tool that the platform offers under its name is executed by the platform, under the
    agent's policy. `archive` is bound last, where another tool is and none has its name: that alone
    tells the context service that results may be archived. Raises UNSUPPORTED with the path of what
    cannot be served.
    """
    offered = {tool.name: tool for tool in platform}
    bindings: dict[str, runtime_pb2.ToolBinding] = {}
    for index, tool in enumerate(agent.tools):
        for binding in _bindings(tool, f"agent.tools.{index}", offered):
            bindings[binding.name] = binding
    if agent.skills:
        names = ", ".join(skill.skill_id for skill in agent.skills)
        raise _unsupported("agent.skills", f"skills are not mounted here yet ({names})")
    for tool in platform:
        bindings.setdefault(tool.name, tool.binding())
    if len(bindings) > _TOOLS_MAX:
        raise _unsupported("agent.tools", f"more than {_TOOLS_MAX} tools: {len(bindings)}")
    if archive is not None and 0 < len(bindings) < _TOOLS_MAX:
        bindings.setdefault(archive.name, archive.binding())
    return runtime_pb2.SessionRuntime(
        model=agent.model.id,
        system=agent.system,
        tools=bindings.values(),
        profile=profile,
        model_options=_model_options(agent.model),
    )


def _model_options(model: agent_pb2.ModelConfig) -> model_pb2.ModelOptions | None:
    options = model_pb2.ModelOptions(
        effort=model.effort.type, speed=model.speed, inference_geo=model.inference_geo
    )
    return options if options.ByteSize() else None


def _bindings(
    tool: agent_pb2.Tool, path: str, offered: dict[str, PlatformTool]
) -> Iterable[runtime_pb2.ToolBinding]:
    match tool.WhichOneof("tool"):
        case "custom":
            return [_custom(tool.custom, path, offered)]
        case "agent_toolset":
            return _built_ins(tool.agent_toolset, path, offered)
        case _:
            _refuse_enabled_mcp(tool.mcp_toolset, path)
            return []


def _custom(
    tool: agent_pb2.CustomTool, path: str, offered: dict[str, PlatformTool]
) -> runtime_pb2.ToolBinding:
    if tool.name in offered:
        raise _unsupported(path, f"the name {tool.name!r} belongs to a platform tool here")
    return runtime_pb2.ToolBinding(
        name=tool.name,
        owner=runtime_pb2.TOOL_OWNER_CLIENT_CUSTOM,
        policy=runtime_pb2.TOOL_POLICY_ALWAYS_ALLOW,
        description=tool.description,
        input_schema=tool.input_schema,
    )


def _built_ins(
    toolset: agent_pb2.AgentToolset, path: str, offered: dict[str, PlatformTool]
) -> list[runtime_pb2.ToolBinding]:
    configs = {config.name: config for config in toolset.configs}
    settings = {name: configs.get(name, toolset.default_config) for name in BUILT_IN_TOOLS}
    enabled = {name: one.permission_policy for name, one in settings.items() if one.enabled}
    unserved = [name for name in enabled if name not in offered]
    if unserved:
        names = ", ".join(unserved)
        raise _unsupported(path, f"no owner serves the built-in tools here yet ({names})")
    return [
        offered[name].binding(_policy(policy.type, path, name)) for name, policy in enabled.items()
    ]


def _policy(type: int, path: str, name: str) -> Policy:
    policy = _POLICIES.get(type)
    if policy is None:
        raise _unsupported(path, f"nobody decides the policy auto of {name!r} here yet")
    return policy


def _refuse_enabled_mcp(toolset: agent_pb2.McpToolset, path: str) -> None:
    """A toolset whose tools are all off offers nothing, so nothing is missing."""
    enabled = [config.name for config in toolset.configs if config.enabled]
    if toolset.default_config.enabled or enabled:
        named = f" ({', '.join(enabled)})" if enabled else ""
        raise _unsupported(
            path,
            f"no owner serves the tools of MCP server {toolset.mcp_server_name!r} here yet{named}",
        )


def _unsupported(path: str, message: str) -> Failure:
    return Failure(reasons.ERROR_REASON_UNSUPPORTED, message, path=path)
