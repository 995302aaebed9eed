"""Decides whether an agent's tools may stand beside each other, and completes them. Pure."""

from collections.abc import Iterable

from counterfoil.registry.v1 import agent_pb2 as pb

from foundation.errors import invalid
from services.registry import web_tools
from services.registry.input_schema import check_input_schema

BUILT_IN_TOOLS = ("bash", "edit", "read", "write", "glob", "grep", "web_fetch", "web_search")
"""Names that only the built-in toolset may use."""

_MCP_PREFIX = "mcp__"
_DEFINITIONS_MAX = 256
_ALLOW = pb.PERMISSION_POLICY_TYPE_ALWAYS_ALLOW
_ASK = pb.PERMISSION_POLICY_TYPE_ALWAYS_ASK


def check(tools: Iterable[pb.Tool], servers: list[str]) -> None:
    """Raise INVALID_FIELD for tools that contradict each other, themselves or the servers."""
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
                definitions += len(BUILT_IN_TOOLS)
    for index, tool in enumerate(tools):
        if tool.HasField("agent_toolset"):
            _check_agent_toolset(tool.agent_toolset, f"tools.{index}", custom)
    if definitions > _DEFINITIONS_MAX:
        raise invalid("tools", f"at most {_DEFINITIONS_MAX} tool definitions, got {definitions}")
    for index, name in enumerate(servers):
        if name not in used:
            raise invalid(f"mcp_servers.{index}", f"no mcp_toolset uses the server {name!r}")


def offers_read(tools: Iterable[pb.Tool]) -> bool:
    """Whether the built-in tool `read` is enabled: skills are read with it."""
    for tool in tools:
        if tool.HasField("agent_toolset"):
            toolset = tool.agent_toolset
            defaults = toolset.default_config
            enabled = defaults.enabled if defaults.HasField("enabled") else True
            for config in toolset.configs:
                if config.name == "read" and config.HasField("enabled"):
                    enabled = config.enabled
            return enabled
    return False


def complete(tool: pb.Tool) -> None:
    """Write out what a checked tool leaves out: configuration, default, built-in rule."""
    match tool.WhichOneof("tool"):
        case "agent_toolset":
            toolset = tool.agent_toolset
            _complete(toolset.default_config, toolset.configs, _ALLOW)
            for config in toolset.configs:
                config.type = config.name
        case "mcp_toolset":
            _complete(tool.mcp_toolset.default_config, tool.mcp_toolset.configs, _ASK)
        case _:
            pass


def _complete(
    defaults: pb.ToolsetDefaults,
    configs: Iterable[pb.ToolConfig | pb.McpToolConfig],
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
    _check_names(toolset.configs, path)


def _check_agent_toolset(toolset: pb.AgentToolset, path: str, custom: set[str]) -> None:
    _check_names(toolset.configs, path)
    for index, config in enumerate(toolset.configs):
        where = f"{path}.configs.{index}"
        if config.name not in BUILT_IN_TOOLS:
            known = ", ".join(BUILT_IN_TOOLS)
            raise invalid(f"{where}.name", f"must be one of {known}, got {config.name!r}")
        if config.HasField("type") and config.type != config.name:
            raise invalid(f"{where}.type", f"must be {config.name!r}, as the name")
        web_tools.check(config, where, custom)


def _check_names(configs: Iterable[pb.ToolConfig | pb.McpToolConfig], path: str) -> None:
    names: set[str] = set()
    for index, config in enumerate(configs):
        if config.name in names:
            raise invalid(f"{path}.configs.{index}.name", f"{config.name!r} is used twice")
        names.add(config.name)
