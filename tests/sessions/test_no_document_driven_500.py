"""Requests that are made up from the OpenAPI document, valid and broken, never meet a 5xx."""

import asyncio
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from tests.support.posts import Things
from tests.support.system import DEVELOPMENT_KEY, System

EMBEDDED = pytest.mark.parametrize("system", ["embedded"], indirect=True)
CHECKS: Any = HealthCheck
ENDING = ("Archive", "Delete")
"""Operations that end a thing come last."""


class Fuzzer:
    """Sends what the document allows, and what it does not, to the things of one system."""

    def __init__(self, system: System, things: Things) -> None:
        self.url = system.rest_url
        self.ids = things.ids
        self.http = requests.Session()
        self.http.headers["authorization"] = f"Bearer {DEVELOPMENT_KEY}"
        self.sent = 0
        self.broken: list[str] = []

    def run(self, examples: int) -> None:
        """This many requests of each kind to each operation, the same ones every time."""
        document = self.http.get(f"{self.url}/openapi.json", timeout=30).json()
        schema: Any = schemathesis.openapi.from_dict(document)
        operations = [found.ok() for found in schema.get_all_operations()]
        operations.sort(key=lambda one: one.definition.raw["operationId"].startswith(ENDING))
        assert operations
        for operation in operations:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                self._try(operation, mode, examples)

    def _try(self, operation: Any, mode: GenerationMode, examples: int) -> None:
        ids = {one.name: self.ids[one.name] for one in operation.path_parameters}

        @settings(
            max_examples=examples,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(CHECKS),
        )
        @given(operation.as_strategy(generation_mode=mode, path_parameters=ids or None))
        def send(case: Any) -> None:
            self._send(case)

        send()

    def _send(self, case: Any) -> None:
        body = case.body
        if case.operation.definition.raw["operationId"] == "CreateSession" and type(body) is dict:
            body.update({key: self.ids[f"{key.removesuffix('_id')}_id"]
                         for key in ("agent", "environment_id")
                         if type(body.get(key)) is str})  # fmt: skip
        prepared = self.http.prepare_request(
            requests.Request(**case.as_transport_kwargs(base_url=self.url))
        )
        # A stream stays open, so that its body is not read.
        with self.http.send(prepared, stream=True, timeout=30) as answer:
            self.sent += 1
            if answer.status_code >= 500:
                sent = (prepared.method, prepared.url, prepared.body)
                self.broken.append(f"{answer.status_code} {answer.text[:300]} for {sent}"[:2000])


async def _fuzz(system: System, examples: int) -> None:
    fuzzer = Fuzzer(system, await Things.make(system.http()))
    await asyncio.to_thread(fuzzer.run, examples)
    assert not fuzzer.broken, "\n".join(fuzzer.broken)
    assert fuzzer.sent > 0


@pytest.mark.full
@pytest.mark.timeout(300)
@EMBEDDED
async def test_requests_from_the_document_meet_no_500(running_system: System) -> None:
    await _fuzz(running_system, 6)
