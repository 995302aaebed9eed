"""Decides what an agent is: checks a definition and completes it. Pure."""

from collections.abc import Iterable
from urllib.parse import urlsplit

from counterfoil.registry.v1 import agent_pb2 as pb

from foundation.errors import invalid
from services.registry.input_schema import check_input_schema

BUILT_IN_TOOLS = ("bash", "edit", "read", "write", "glob", "grep", "web_fetch", "web_search")
"""Names that only the built-in toolset may use."""

_MCP_PREFIX = "mcp__"
_DEFINITIONS_MAX = 256
_ALLOW = pb.PERMISSION_POLICY_TYPE_ALWAYS_ALLOW
_ASK = pb.PERMISSION_POLICY_TYPE_ALWAYS_ASK


def new_agent(request: pb.CreateAgentRequest, agent_id: str) -> pb.Agent:
    """Version 1 of the agent that a valid request describes, with every default written out.

    Times are left to the store. Raises INVALID_FIELD with the JSON path.
    """
    _check_servers(request.mcp_servers)
    _check_tools(request.tools, [server.name for server in request.mcp_servers])
    agent = pb.Agent(
        id=agent_id,
        execution_identity=pb.ExecutionIdentity(),
        mcp_servers=request.mcp_servers,
        metadata=dict(request.metadata),
        model=request.model,
        name=request.name,
        skills=request.skills,
        tools=[_completed(tool) for tool in request.tools],
        version=1,
    )
    # An empty text clears these two, so it is the same as none.
    if request.description:
        agent.description = request.description
    if request.system:
        agent.system = request.system
    return agent


def _check_servers(servers: Iterable[pb.McpServer]) -> None:
    names: set[str] = set()
    for index, server in enumerate(servers):
        if server.name in names:
            raise invalid(f"mcp_servers.{index}.name", f"{server.name!r} is used twice")
        names.add(server.name)
        if not _is_http(server.url):
            raise invalid(f"mcp_servers.{index}.url", "must be an http or https URL")


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _check_tools(tools: Iterable[pb.Tool], servers: list[str]) -> None:
    custom: set[str] = set()
    used: set[str] = set()
    toolsets = definitions = 0
    for index, tool in enumerate(tools):
        path = f"tools.{index}"
        match tool.WhichOneof("tool"):
            case "custom":
                _check_custom(tool.custom, path, custom)
                custom.add(tool.custom.name)
                definitions += 1
            case "mcp_toolset":
                _check_mcp_toolset(tool.mcp_toolset, path, servers, used)
                used.add(tool.mcp_toolset.mcp_server_name)
                definitions += len(tool.mcp_toolset.configs)
            case _:
                toolsets += 1
                if toolsets > 1:
                    raise invalid(path, "an agent has at most one toolset of built-in tools")
                _check_agent_toolset(tool.agent_toolset, path)
                definitions += len(BUILT_IN_TOOLS)
    if definitions > _DEFINITIONS_MAX:
        raise invalid("tools", f"at most {_DEFINITIONS_MAX} tool definitions, got {definitions}")
    for index, name in enumerate(servers):
        if name not in used:
            raise invalid(f"mcp_servers.{index}", f"no mcp_toolset uses the server {name!r}")


def _check_custom(tool: pb.CustomTool, path: str, names: set[str]) -> None:
    if tool.name in BUILT_IN_TOOLS:
        raise invalid(f"{path}.name", f"{tool.name!r} is the name of a built-in tool")
    if tool.name.startswith(_MCP_PREFIX):
        raise invalid(f"{path}.name", f"must not begin with {_MCP_PREFIX!r}")
    if tool.name in names:
        raise invalid(f"{path}.name", f"{tool.name!r} is used twice")
    check_input_schema(tool.input_schema, f"{path}.input_schema")


def _check_mcp_toolset(
    toolset: pb.McpToolset, path: str, servers: list[str], used: set[str]
) -> None:
    name = toolset.mcp_server_name
    if name not in servers:
        raise invalid(f"{path}.mcp_server_name", f"mcp_servers has no server {name!r}")
    if name in used:
        raise invalid(f"{path}.mcp_server_name", f"{name!r} has a toolset already")
    _check_configs(toolset.configs, path)
    for index, config in enumerate(toolset.configs):
        if config.HasField("type"):
            raise invalid(f"{path}.configs.{index}.type", "is only for built-in tools")


def _check_agent_toolset(toolset: pb.AgentToolset, path: str) -> None:
    _check_configs(toolset.configs, path)
    for index, config in enumerate(toolset.configs):
        where = f"{path}.configs.{index}"
        if config.name not in BUILT_IN_TOOLS:
            known = ", ".join(BUILT_IN_TOOLS)
            raise invalid(f"{where}.name", f"must be one of {known}, got {config.name!r}")
        if config.HasField("type") and config.type != config.name:
            raise invalid(f"{where}.type", f"must be {config.name!r}, as the name")


def _check_configs(configs: Iterable[pb.ToolConfig], path: str) -> None:
    names: set[str] = set()
    for index, config in enumerate(configs):
        if config.name in names:
            raise invalid(f"{path}.configs.{index}.name", f"{config.name!r} is used twice")
        names.add(config.name)


def _completed(tool: pb.Tool) -> pb.Tool:
    """The same tool with what it leaves out written out: configuration, default, built-in rule."""
    complete = pb.Tool()
    complete.CopyFrom(tool)
    match tool.WhichOneof("tool"):
        case "agent_toolset":
            toolset = complete.agent_toolset
            _complete(
                toolset.default_config, toolset.configs, pb.PERMISSION_POLICY_TYPE_ALWAYS_ALLOW
            )
            for config in toolset.configs:
                config.type = config.name
        case "mcp_toolset":
            toolset = complete.mcp_toolset
            _complete(toolset.default_config, toolset.configs, _ASK)
        case _:
            pass
    return complete


def _complete(
    defaults: pb.ToolsetDefaults,
    configs: Iterable[pb.ToolConfig],
    policy: pb.PermissionPolicyType.ValueType,
) -> None:
    if not defaults.HasField("enabled"):
        defaults.enabled = True
    if not defaults.HasField("permission_policy"):
        defaults.permission_policy.type = policy
    for config in configs:
        if not config.HasField("enabled"):
            config.enabled = defaults.enabled
        if not config.HasField("permission_policy"):
            config.permission_policy.CopyFrom(defaults.permission_policy)
