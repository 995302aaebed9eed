"""What one provider request costs this process: the runner's adapter, from bytes to an answer."""

import time

import msgspec

from bench.plan import Plan, Sample
from bench.stats import short
from cli.offline import OfflineModel
from services.runner.adapter.messages import MessagesAdapter

_REQUEST = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 1024,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "How are you?"}]}],
    "stream": True,
}


async def provider(plan: Plan) -> list[Sample]:
    """CPU of this process per streamed request, one after the other, on a kept connection."""
    body = msgspec.json.encode(_REQUEST)
    model = await OfflineModel.start()
    adapter = MessagesAdapter(model.url, "offline")
    count = plan.count(500)
    try:
        for _ in range(plan.count(50)):
            await adapter.call(body, stream=True, on_piece=lambda _: None)
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(count):
            await adapter.call(body, stream=True, on_piece=lambda _: None)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    finally:
        await adapter.close()
        await model.stop()
    note = (
        "mean CPU time of the client's process: request, stream and our assembly of the answer;"
        f" with the offline model's part {short(wall / count * 1e3)} ms pass"
    )
    return [Sample("provider_cpu", cpu / count * 1e3, n=count, note=note)]
