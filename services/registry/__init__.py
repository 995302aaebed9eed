"""The registry: agents and their immutable versions, environments, workspaces, API keys."""
