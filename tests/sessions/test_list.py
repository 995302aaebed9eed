"""The list of sessions: filters, both directions of paging, with the official client."""

from datetime import timedelta
from typing import Any

import anthropic
import pytest

from tests.sessions.support import refused
from tests.support.chat import Chat
from tests.support.system import System


@pytest.fixture
async def chats(running_system: System) -> list[Chat]:
    """Two sessions of each of two agents, one agent after the other; the first is archived."""
    found: list[Chat] = []
    for _ in range(2):
        chat = await Chat.open(running_system)
        again = await chat.client.beta.sessions.create(
            agent=chat.agent_id, environment_id=chat.environment_id
        )
        same = {"agent_id": chat.agent_id, "environment_id": chat.environment_id}
        found += [chat, Chat(chat.system, again.id, chat.client, **same)]
    await found[0].client.beta.sessions.archive(found[0].id)
    return found


async def listed(chat: Chat, **filters: Any) -> list[str]:
    """Ids of all pages."""
    return [one.id async for one in chat.client.beta.sessions.list(**filters)]


async def test_filters_choose(chats: list[Chat]) -> None:
    first, second, third, fourth = (chat.id for chat in chats)
    chat = chats[0]
    assert await listed(chat) == [fourth, third, second]
    assert await listed(chat, order="asc") == [second, third, fourth]
    assert await listed(chat, include_archived=True) == [fourth, third, second, first]
    agent = chats[0].agent_id
    assert await listed(chat, agent_id=agent) == [second]
    assert await listed(chat, agent_id=agent, agent_version=1) == [second]
    assert await listed(chat, agent_id=agent, agent_version=2) == []
    assert await listed(chat, statuses=["running", "rescheduling"]) == []
    assert await listed(chat, statuses=["terminated"]) == []
    assert await listed(chat, statuses=["terminated"], include_archived=True) == [first]
    assert await listed(chat, statuses=["idle", "terminated"]) == [fourth, third, second]
    assert await listed(chat, deployment_id="depl_1") == []
    assert await listed(chat, memory_store_id="memstore_1") == []


async def test_times_are_those_that_clients_see(chats: list[Chat]) -> None:
    sessions = chats[0].client.beta.sessions
    first, second, third, fourth = (chat.id for chat in chats)
    created = (await sessions.retrieve(third)).created_at
    every = {"include_archived": True}
    assert await listed(chats[0], created_at_gte=created, **every) == [fourth, third]
    assert await listed(chats[0], created_at_gt=created, **every) == [fourth]
    assert await listed(chats[0], created_at_lte=created, **every) == [third, second, first]
    assert await listed(chats[0], created_at_lt=created, **every) == [second, first]
    both = {"created_at_gte": created, "created_at_lte": created}
    assert await listed(chats[0], **both, **every) == [third]


@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_pages_go_forward_and_back(chats: list[Chat], order: Any) -> None:
    sessions = chats[0].client.beta.sessions
    every = await listed(chats[0], include_archived=True, order=order)
    assert len(every) == 4

    async def page(cursor: str | None, limit: int = 1) -> Any:
        more: Any = {} if cursor is None else {"page": cursor}
        return await sessions.list(include_archived=True, order=order, limit=limit, **more)

    found = await page(None)
    forward = [one.id for one in found.data]
    assert found.prev_page is None
    while found.next_page is not None:
        found = await page(found.next_page)
        forward += [one.id for one in found.data]
        assert found.prev_page is not None
    assert forward == every
    back: list[str] = []
    cursor = found.prev_page
    while cursor is not None:
        found = await page(cursor, limit=2)
        back = [one.id for one in found.data] + back
        assert found.next_page is not None
        cursor = found.prev_page
    assert back == every[:3]
    again = await page(found.next_page, limit=2)
    assert [one.id for one in again.data][-1] in every[1:]
    assert [one async for one in sessions.list(include_archived=True, order=order, limit=3)]


async def test_cursors_belong_to_their_list(chats: list[Chat]) -> None:
    sessions = chats[0].client.beta.sessions
    page = await sessions.list(limit=1)
    assert page.next_page is not None
    cursor = page.next_page
    await refused(sessions.list(page=cursor, order="asc"), "page: ", "order")
    await refused(sessions.list(page="AAAA"), "page: ")
    at = page.data[0].created_at
    await refused(sessions.list(page=cursor, created_at_lt=at), "page: ", "created_at")
    later = await sessions.list(page=cursor, created_at_lt=at + timedelta(seconds=1), limit=50)
    assert len(later.data) == 2
    events = chats[0].client.beta.sessions.events
    await refused(events.list(chats[1].id, page=cursor), "page: ")


async def test_other_workspaces_see_nothing(chats: list[Chat]) -> None:
    stranger = chats[0].system.client()
    stranger.api_key = "wrong"
    with pytest.raises(anthropic.AuthenticationError):
        await stranger.beta.sessions.list()
