"""What the gateway says about itself, to people and to tools. No credential is needed."""

from importlib.resources import files

from gateway.answers import Answer, document, json_answer

PUBLIC = ("/", "/openapi.json", "/healthz", "/readyz")
"""Paths outside the contract."""

_OPENAPI = files("gateway").joinpath("openapi.json").read_bytes()

_LINKS = {
    "openapi": "/openapi.json",
    "health": "/healthz",
    "readiness": "/readyz",
    "agents": "/v1/agents",
    "sessions": "/v1/sessions",
}

_PAGE = b"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Counterfoil</title>
<style>
:root { color-scheme: light dark; }
body { font: 1rem/1.6 system-ui, sans-serif; max-width: 42rem; margin: 4rem auto; padding: 0 1rem; }
code, pre { font: 0.9rem/1.5 ui-monospace, monospace; }
pre { padding: 1rem; overflow-x: auto; border: 1px solid #8886; border-radius: 0.4rem; }
dt { font-weight: 600; margin-top: 0.8rem; }
dd { margin: 0; }
</style>
</head>
<body>
<h1>Counterfoil</h1>
<p>This is the REST interface of a Counterfoil installation: a durable runtime for long-running AI
agents. Use it with the official <code>anthropic</code> SDK, or with any HTTP client:</p>
<pre>from anthropic import Anthropic

client = Anthropic(base_url="&lt;this address&gt;", api_key="&lt;a workspace key&gt;")
client.beta.agents.create(name="Clerk", model="claude-sonnet-4-5")</pre>
<dl>
<dt><a href="/openapi.json">/openapi.json</a></dt>
<dd>Every call, field, limit and error, as OpenAPI 3.1.</dd>
<dt><a href="/readyz">/readyz</a></dt>
<dd>Status: whether every part of the installation can be reached, and which one cannot.</dd>
<dt><a href="/healthz">/healthz</a></dt>
<dd>Whether this process answers.</dd>
<dt>Documentation</dt>
<dd>In the folder <code>docs</code> of the source: concepts, operating, internals. The commands
explain themselves: <code>counterfoil --help</code>.</dd>
<dt>gRPC</dt>
<dd>The same calls for every language, from the contracts in the folder <code>proto</code>; the
server offers reflection.</dd>
</dl>
</body>
</html>
"""


def page(path: str, accept: str) -> Answer | None:
    """The answer for a path of ours that needs no look at anything; None for other paths."""
    if path == "/openapi.json":
        return json_answer(200, _OPENAPI)
    if path == "/healthz":
        return document(200, {"status": "ok"})
    if path != "/":
        return None
    if "application/json" in accept and "text/html" not in accept:
        return document(200, {"name": "counterfoil", "links": _LINKS})
    return Answer(200, _PAGE, [(b"content-type", b"text/html; charset=utf-8"), _POLICY])


_POLICY = (
    b"content-security-policy",
    b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
)
