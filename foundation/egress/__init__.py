"""The guarded way out: every request to an address that somebody else chose goes through here.

MCP servers, pages that a model wants to read, webhooks. Names are resolved by us, each answer is
judged, the judged address is the one that is dialled, and what comes back is bounded in bytes and
time. `guard.py` is where a caller begins; the modules `addresses`, `allowing`, `targets`, `policy`,
`decoding` and `redirects` decide without I/O.
"""
