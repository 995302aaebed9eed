"""Runs the example, and dies by SIGKILL at one exact request; notes what it could have leaked.

DIES_AT="before 6" | "after 6"     the sixth request is not sent | was answered
NOTES=path                         gets the environment and the headers of the first request
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import httpx2

from examples.hitl_gate.main import main


def install(dies_at: str, notes: str) -> None:
    """Wrap the one place through which every request of the SDK goes."""
    moment, _, number = dies_at.partition(" ")
    send = httpx2.Client.send
    sent = 0

    def counted(client: httpx2.Client, request: httpx2.Request, **options: Any) -> httpx2.Response:
        nonlocal sent
        sent += 1
        if notes and sent == 1:
            seen = {"environment": dict(os.environ), "headers": dict(request.headers)}
            Path(notes).write_text(json.dumps(seen))
        if (moment, number) == ("before", str(sent)):
            os.kill(os.getpid(), signal.SIGKILL)
        response = send(client, request, **options)
        if (moment, number) == ("after", str(sent)):
            os.kill(os.getpid(), signal.SIGKILL)
        return response

    setattr(httpx2.Client, "send", counted)  # noqa: B010 (its signature is wider than ours)


if __name__ == "__main__":
    install(os.environ.pop("DIES_AT", ""), os.environ.pop("NOTES", ""))
    sys.exit(main())
