"""One real object store per pytest session, and an empty bucket per test."""

import itertools
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from foundation.objects import EmbeddedObjects, Endpoint, ObjectStore
from tests.support.postgres import run_aside


class SessionObjects:
    """A running server."""

    def __init__(self, server: EmbeddedObjects, endpoint: Endpoint, folder: Path) -> None:
        self.server = server
        self._folder = folder
        self._endpoint = endpoint
        self._numbers = itertools.count(1)

    def endpoint(self) -> Endpoint:
        """A bucket that nobody has used; it appears with its first object."""
        return replace(self._endpoint, bucket=f"test-{next(self._numbers)}")

    def log(self) -> str:
        """What the server said."""
        return (self._folder / "seaweedfs.log").read_text()

    def store(self) -> ObjectStore:
        """An empty store."""
        return ObjectStore.at(self.endpoint())

    async def environment(self) -> dict[str, str]:
        """The settings of an empty store, whose bucket is there as an operator would have made
        it."""
        endpoint = self.endpoint()
        store = ObjectStore.at(endpoint)
        await store.put("made", b"")
        await store.delete("made")
        return {
            "COUNTERFOIL_S3_ENDPOINT": endpoint.url,
            "COUNTERFOIL_S3_ACCESS_KEY": endpoint.access_key,
            "COUNTERFOIL_S3_SECRET_KEY": endpoint.secret_key,
            "COUNTERFOIL_S3_BUCKET": endpoint.bucket,
        }


@contextmanager
def session_objects() -> Generator[SessionObjects]:
    """Start one server in a private temp folder; stop it and remove the folder at the end."""
    with tempfile.TemporaryDirectory(prefix="counterfoil-tests-") as folder:
        place = Path(folder) / "objects"
        server = EmbeddedObjects(place)
        endpoint = run_aside(server.locate())
        try:
            yield SessionObjects(server, endpoint, place)
        finally:
            run_aside(server.stop())
