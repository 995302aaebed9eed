"""A workspace of another installation comes to live here, under its own id.

Digests of a session name its workspace, so what is imported keeps it. An installation in which
nobody defined anything gives its one workspace that id; its keys go along.
"""

from foundation.errors import wrong_state
from foundation.storage import Database

_LOCK = """
LOCK TABLE registry.workspaces, registry.agents, registry.environments IN SHARE ROW EXCLUSIVE MODE
"""

_LOOK = """
SELECT (SELECT count(*) FROM registry.workspaces) AS workspaces,
    EXISTS (SELECT FROM registry.workspaces WHERE id = $1) AS is_here,
    EXISTS (SELECT FROM registry.agents) OR EXISTS (SELECT FROM registry.environments) AS is_used
"""

_RENAME = "UPDATE registry.workspaces SET id = $1"

_MOVE_KEYS = "UPDATE registry.api_keys SET workspace_id = $1"


async def adopt(db: Database, workspace_id: str) -> None:
    """Make sure that the workspace is here. Raises WRONG_STATE."""
    async with db.commit("registry.adopt_workspace") as c:
        await c.execute(_LOCK)
        row = await c.fetchrow(_LOOK, workspace_id)
        assert row is not None
        if row["is_here"]:
            return
        if row["workspaces"] != 1 or row["is_used"]:
            raise wrong_state(
                f"this installation is not empty and has no workspace {workspace_id}: import into"
                " an empty one, or into the one that the export came from"
            )
        await c.execute(_RENAME, workspace_id)
        await c.execute(_MOVE_KEYS, workspace_id)
