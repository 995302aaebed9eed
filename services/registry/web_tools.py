"""Decides what the configuration of web_search and web_fetch may say. Pure."""

import re
from collections.abc import Collection

from counterfoil.registry.v1 import agent_pb2 as pb

from foundation.errors import invalid

_WEB = ("web_fetch", "web_search")
_OWNERS = {
    "allowed_domains": _WEB,
    "blocked_domains": _WEB,
    "user_location": ("web_search",),
    "max_content_tokens": ("web_fetch",),
    "url_sources": ("web_fetch",),
}
_HOST = (
    r"(?=[^/]{1,253}(?:/|$))[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    r"(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
)
_DOMAINS = {
    "web_fetch": (re.compile(_HOST), "a host name: no scheme, port or path"),
    "web_search": (
        re.compile(rf"{_HOST}(?:/[!-~]*)?"),
        "a host name, perhaps with a path: no scheme or port",
    ),
}
_NAMED = (pb.URL_SOURCE_TYPE_ONLY, pb.URL_SOURCE_TYPE_EXCEPT)


def check(config: pb.ToolConfig, path: str, custom: Collection[str]) -> None:
    """Raise INVALID_FIELD for members of another tool, or ones that contradict each other.

    `custom` are the names of the agent's custom tools.
    """
    for field, _ in config.ListFields():
        owners = _OWNERS.get(field.name)
        if owners is not None and config.name not in owners:
            raise invalid(f"{path}.{field.name}", f"is only for {' and '.join(owners)}")
    if config.HasField("allowed_domains") and config.HasField("blocked_domains"):
        raise invalid(f"{path}.blocked_domains", "cannot be given together with allowed_domains")
    _check_domains(config, config.allowed_domains, f"{path}.allowed_domains")
    _check_domains(config, config.blocked_domains, f"{path}.blocked_domains")
    if config.HasField("url_sources"):
        _check_sources(config.url_sources, f"{path}.url_sources", custom)


def _check_domains(config: pb.ToolConfig, domains: pb.DomainList, path: str) -> None:
    if not domains.items:
        return
    pattern, must = _DOMAINS[config.name]
    for index, domain in enumerate(domains.items):
        if pattern.fullmatch(domain) is None:
            raise invalid(f"{path}.{index}", f"must be {must}")


def _check_sources(sources: pb.WebFetchUrlSources, path: str, custom: Collection[str]) -> None:
    _check_filter(
        sources.client_tool_results, f"{path}.client_tool_results", custom, "a custom tool"
    )
    _check_filter(
        sources.server_tool_results, f"{path}.server_tool_results", _WEB, " or ".join(_WEB)
    )
    none = pb.URL_SOURCE_TYPE_NONE
    chosen = (sources.client_tool_results, sources.server_tool_results, sources.user_input)
    if all(source.type == none for source in chosen):
        raise invalid(path, "allows no URL at all: not all three may be none; disable the tool")


def _check_filter(source: pb.UrlSourceFilter, path: str, known: Collection[str], what: str) -> None:
    if source.type not in _NAMED:
        if source.tools:
            raise invalid(f"{path}.tools", "is only for the types only and except")
        return
    if not source.tools:
        raise invalid(f"{path}.tools", "needs at least 1 tool; use none or all instead")
    names: set[str] = set()
    for index, tool in enumerate(source.tools):
        where = f"{path}.tools.{index}.name"
        if tool.name not in known:
            raise invalid(where, f"must be {what} of this agent, got {tool.name!r}")
        if tool.name in names:
            raise invalid(where, f"{tool.name!r} is named twice")
        names.add(tool.name)
