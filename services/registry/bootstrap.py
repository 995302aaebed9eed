"""What must exist before anybody can call: a workspace and a key to it."""

from foundation import ids
from foundation.storage import Database, SealRing
from services.registry import store
from services.registry.keys import PREFIX_BYTES, hash_of, load_pepper

_KEY_NAME = "bootstrap"


async def ensure_workspace(db: Database, ring: SealRing, workspace_name: str, api_key: str) -> str:
    """Create the workspace and its bootstrap key unless they exist; returns the workspace id.

    Idempotent, also among processes that start together. Another key than last time replaces the
    bootstrap key, and the old one stops working.
    """
    hashed = hash_of(await load_pepper(db, ring), api_key)
    async with db.commit("registry.ensure_workspace") as c:
        workspace = await store.lock_workspace(c, ids.new("workspace"), workspace_name)
        await store.put_key(
            c, workspace, ids.new("api_key"), _KEY_NAME, hashed[:PREFIX_BYTES], hashed
        )
    return workspace
