"""Decides what an agent is: checks a definition, completes it, changes it. Pure.

Every function returns a definition that holds: complete, free of contradictions. Times are left to
the store. Each raises INVALID_FIELD with the JSON path.
"""

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from counterfoil.registry.v1 import agent_pb2 as pb
from counterfoil.types.v1 import error_reason_pb2 as reasons

from foundation import masks
from foundation.errors import Failure, invalid
from foundation.metadata import patch
from services.registry import agent_tools

_NEWEST_SKILL = "latest"
_LISTS = ("tools", "mcp_servers", "skills")
_TEXTS = ("description", "system")
_UPDATED = ("name", "model", *_TEXTS, *_LISTS, "metadata", "execution_identity", "multiagent")
_OVERRIDDEN = ("model", "system", *_LISTS)


def new_agent(request: pb.CreateAgentRequest, agent_id: str) -> pb.Agent:
    """Version 1 of the agent that a valid request describes."""
    _refuse_roster(request.multiagent)
    agent = pb.Agent(
        id=agent_id,
        mcp_servers=request.mcp_servers,
        metadata=dict(request.metadata),
        model=request.model,
        name=request.name,
        skills=request.skills,
        tools=request.tools,
        version=1,
    )
    for name in _TEXTS:
        _put_text(agent, name, getattr(request, name))
    return _completed(agent)


def updated(current: pb.Agent, request: pb.UpdateAgentRequest) -> pb.Agent | None:
    """The version behind `current`, or None when nothing would change."""
    named = masks.named(request, _UPDATED, ("version",))
    _refuse_roster(request.multiagent)
    agent = _copy(current)
    if "name" in named:
        if not request.HasField("name"):
            raise invalid("name", "cannot be cleared")
        agent.name = request.name
    if "model" in named:
        _put_model(agent, request.model, request.HasField("model"))
        if request.model.id == current.model.id and not request.model.HasField("effort"):
            _keep_effort(agent.model, current.model)
    for name in _TEXTS:
        if name in named:
            _put_text(agent, name, getattr(request, name))
    _put_lists(agent, request, named)
    if "metadata" in named:
        pairs = patch(current.metadata, request.metadata)
        agent.ClearField("metadata")
        agent.metadata.update(pairs)
    agent = _completed(agent)
    _keep_equal_schemas(agent.tools, current.tools)
    if agent == current:
        return None
    agent.version = current.version + 1
    return agent


def overridden(agent: pb.Agent, overrides: pb.AgentOverrides) -> pb.Agent:
    """The agent as a session sees it that replaces parts of it; its version stays."""
    named = masks.named(overrides, _OVERRIDDEN)
    effective = _copy(agent)
    if "model" in named:
        _put_model(effective, overrides.model, overrides.HasField("model"))
    if "system" in named:
        _put_text(effective, "system", overrides.system)
    _put_lists(effective, overrides, named)
    try:
        return _completed(effective)
    except Failure as failure:
        raise invalid(f"agent.{failure.path}", failure.message) from None


def session_agent_overridden(
    agent: pb.SessionAgent, overrides: pb.AgentOverrides
) -> pb.SessionAgent:
    """A session's copy of an agent with parts of it replaced."""
    shared = [field.name for field in pb.SessionAgent.DESCRIPTOR.fields]
    effective = overridden(_carried(agent, pb.Agent(), shared), overrides)
    return _carried(effective, pb.SessionAgent(), shared)


def check_version(current: pb.Agent, request: pb.UpdateAgentRequest) -> None:
    """Raise CONFLICT when the request was made for another version than the newest."""
    if request.HasField("version") and request.version != current.version:
        raise Failure(
            reasons.ERROR_REASON_CONFLICT,
            f"the newest version of agent {current.id} is {current.version}, not "
            f"{request.version}; read it again and repeat the change",
            path="version",
        )


def _refuse_roster(raw: bytes) -> None:
    if raw:
        raise invalid("multiagent", "rosters are not supported yet; leave it out")


def _put_text(agent: pb.Agent, name: str, text: str) -> None:
    """An empty text clears, so it is the same as none."""
    agent.ClearField(name)  # pyright: ignore[reportArgumentType] # one of two names
    if text:
        setattr(agent, name, text)


def _put_model(agent: pb.Agent, model: pb.ModelConfig, given: bool) -> None:
    if not given:
        raise invalid("model", "cannot be cleared")
    agent.model.CopyFrom(model)


def _keep_effort(model: pb.ModelConfig, before: pb.ModelConfig) -> None:
    if before.HasField("effort"):
        model.effort.CopyFrom(before.effort)


def _put_lists(agent: pb.Agent, source: Any, named: set[str]) -> None:
    for name in _LISTS:
        if name in named:
            agent.ClearField(name)
            getattr(agent, name).extend(getattr(source, name))


def _completed(agent: pb.Agent) -> pb.Agent:
    """The same agent, checked, with every default written out."""
    _check_servers(agent.mcp_servers)
    agent_tools.check(agent.tools, [server.name for server in agent.mcp_servers])
    if agent.skills and not agent_tools.offers_read(agent.tools):
        raise invalid("skills", "need the built-in tool read: add and enable it, or clear skills")
    complete = _copy(agent)
    complete.execution_identity.SetInParent()
    for tool in complete.tools:
        agent_tools.complete(tool)
    for skill in complete.skills:
        if not skill.HasField("version"):
            skill.version = _NEWEST_SKILL
    return complete


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


def _keep_equal_schemas(tools: Iterable[pb.Tool], before: Iterable[pb.Tool]) -> None:
    """Schemas that mean what they meant keep their bytes: white space and order are no change."""
    known = {
        tool.custom.name: tool.custom.input_schema for tool in before if tool.HasField("custom")
    }
    for tool in tools:
        stored = known.get(tool.custom.name) if tool.HasField("custom") else None
        if stored is not None and _meaning(stored) == _meaning(tool.custom.input_schema):
            tool.custom.input_schema = stored


def _meaning(raw: bytes) -> str:
    def number(text: str) -> dict[str, str]:
        return {"\0number": text}

    value = json.loads(raw, parse_int=number, parse_float=number)
    return json.dumps(value, sort_keys=True)


def _copy(agent: pb.Agent) -> pb.Agent:
    copy = pb.Agent()
    copy.CopyFrom(agent)
    return copy


def _carried(source: Any, target: Any, names: Iterable[str]) -> Any:
    """`target` with the fields of `source` that both have under the same name and type."""
    for field, value in source.ListFields():
        if field.name not in names:
            continue
        if field.is_repeated:
            getattr(target, field.name).extend(value)
        elif field.message_type is not None:
            getattr(target, field.name).CopyFrom(value)
        else:
            setattr(target, field.name, value)
    return target
