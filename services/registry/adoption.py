"""A workspace of another installation comes to live here, under its own id.

Digests of a session name its workspace, so what is imported keeps it. An installation in which
nobody defined anything gives its one workspace that id; its keys go along.
"""

from foundation.errors import wrong_state
from foundation.storage import Database
from services.registry import store


async def adopt(db: Database, workspace_id: str) -> None:
    """Make sure that the workspace is here. Raises WRONG_STATE."""
    async with db.commit("registry.adopt_workspace") as c:
        await c.execute(store.LOCK_DEFINITIONS)
        row = await c.fetchrow(store.LOOK_AROUND, workspace_id)
        assert row is not None
        if row["is_here"]:
            return
        if row["workspaces"] != 1 or row["is_used"]:
            raise wrong_state(
                f"this installation is not empty and has no workspace {workspace_id}: import into"
                " an empty one, or into the one that the export came from"
            )
        await c.execute(store.RENAME_WORKSPACE, workspace_id)
        await c.execute(store.MOVE_KEYS, workspace_id)
