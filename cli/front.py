"""The gateway of a process: REST and SSE in front of the services, wherever they are."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from foundation import measures
from foundation.bootstrap import Kernel
from gateway.app import create_app
from gateway.limits import Rates
from gateway.server import serve

Readiness = Callable[[], Awaitable[dict[str, str | None]]]


async def open_front(kernel: Kernel, readiness: Readiness, stack: AsyncExitStack) -> int:
    """Serves until the stack ends; the port."""
    settings = kernel.settings
    app = create_app(
        lambda service: kernel.channel(service, credential=""),
        readiness=readiness,
        rates=Rates(settings.rate_limit_create, settings.rate_limit_read),
    )
    kernel.watch(measures.STREAMS.watch(lambda: app.open_streams, "gateway"))
    rest = await serve(app, settings.host, settings.port)
    stack.push_async_callback(rest.stop)
    return rest.port
