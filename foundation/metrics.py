"""Metrics: events count in plain cells, and whoever reads collects them.

A cell is bound once, where the code that counts is built; to count is one addition, whether or not
anybody reads. Only readings go through OpenTelemetry: an export over OTLP every minute, and each
scrape by Prometheus. What is measured stands in `foundation.measures`.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import structlog

from foundation import telemetry

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from opentelemetry.sdk.metrics import MeterProvider

SERIES_MAX = 500
"""Series of one instrument; what comes after them counts together under `OTHER`."""

OTHER = "other"

DEFAULT_ADDRESS = "127.0.0.1:9464"
"""Where `counterfoil run` is read; the port is OpenTelemetry's usual one."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
_READ_S = 2.0
_FLUSH_S = 2.0

_log = structlog.get_logger("counterfoil.metrics")

Labels = tuple[str, ...]
Read = Callable[[], float | None]


class Cell:
    """One number. Counters only rise."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Instrument:
    """What is measured under one name, in one series for each combination of label values."""

    kind = ""

    def __init__(self, name: str, unit: str, description: str, *labels: str) -> None:
        self.name = name
        self.unit = unit
        self.description = description
        self.labels = labels
        self._attributes: dict[Labels, dict[str, str]] = {}

    def attributes(self, values: Labels) -> dict[str, str]:
        """Label values as attributes, built once for each series."""
        found = self._attributes.get(values)
        if found is None:
            found = dict(zip(self.labels, values, strict=True))
            if len(self._attributes) < SERIES_MAX:
                self._attributes[values] = found
        return found

    def register(self, meter: "Meter") -> None:
        """Make it readable."""
        raise NotImplementedError


class Counter(Instrument):
    """Counts events."""

    kind = "counter"

    def __init__(self, name: str, unit: str, description: str, *labels: str) -> None:
        super().__init__(name, unit, description, *labels)
        self._cells: dict[Labels, Cell] = {}

    def cell(self, *values: str) -> Cell:
        """The number of these label values; keep it where it is used often."""
        cell = self._cells.get(values)
        if cell is None:
            if len(self._cells) >= SERIES_MAX:
                values = (OTHER,) * len(self.labels)
            cell = self._cells.setdefault(values, Cell())
        return cell

    def total(self) -> int:
        """The sum of all series."""
        return sum(cell.value for cell in self._cells.values())

    def register(self, meter: "Meter") -> None:
        """Read the cells whenever somebody collects."""
        meter.create_observable_counter(self.name, [self._observe], self.unit, self.description)

    def _observe(self, _: "CallbackOptions") -> "Iterable[Observation]":
        from opentelemetry.metrics import Observation

        return [
            Observation(cell.value, self.attributes(values))
            for values, cell in list(self._cells.items())
        ]


class Gauge(Instrument):
    """What is the case now: read when somebody collects, by whoever knows it."""

    kind = "gauge"

    def __init__(self, name: str, unit: str, description: str, *labels: str) -> None:
        super().__init__(name, unit, description, *labels)
        self._reads: dict[Labels, Read] = {}

    def watch(self, read: Read, *values: str) -> Callable[[], None]:
        """Ask `read` from now on; it runs in another thread and returns None for nothing known.
        Returns what ends it."""
        self._reads[values] = read

        def end() -> None:
            if self._reads.get(values) is read:
                del self._reads[values]

        return end

    def watch_async(
        self, read: Callable[[], Awaitable[float | None]], *values: str
    ) -> Callable[[], None]:
        """The same for what this event loop has to look up."""
        loop = asyncio.get_running_loop()
        thread = threading.get_ident()

        async def ask() -> float | None:
            return await read()

        def wait() -> float | None:
            if loop.is_closed() or threading.get_ident() == thread:
                return None
            asking = asyncio.run_coroutine_threadsafe(ask(), loop)
            try:
                return asking.result(_READ_S)
            except Exception as error:
                # A reading must not fail because one number is not known.
                asking.cancel()
                _log.debug("not measured", metric=self.name, error=type(error).__name__)
                return None

        return self.watch(wait, *values)

    def register(self, meter: "Meter") -> None:
        """Ask whenever somebody collects."""
        meter.create_observable_gauge(self.name, [self._observe], self.unit, self.description)

    def _observe(self, _: "CallbackOptions") -> "Iterable[Observation]":
        from opentelemetry.metrics import Observation

        found = [(values, read()) for values, read in list(self._reads.items())]
        return [
            Observation(value, self.attributes(values))
            for values, value in found
            if value is not None
        ]


class Histogram(Instrument):
    """How events are distributed. For what happens a few times a second at most."""

    kind = "histogram"

    def __init__(
        self, name: str, unit: str, description: str, *labels: str, bounds: tuple[float, ...]
    ) -> None:
        super().__init__(name, unit, description, *labels)
        self._bounds = bounds
        self._target: Any = None

    def record(self, value: float, *values: str) -> None:
        """Add one event; label values that are empty are left out."""
        if self._target is None:
            return
        if values not in self._attributes and len(self._attributes) >= SERIES_MAX:
            values = (OTHER,) * len(self.labels)
        self._target.record(value, self.attributes(values))

    def attributes(self, values: Labels) -> dict[str, str]:
        """Label values as attributes, without the empty ones."""
        return {name: value for name, value in super().attributes(values).items() if value}

    def register(self, meter: "Meter") -> None:
        """Record from now on."""
        self._target = meter.create_histogram(
            self.name, self.unit, self.description, explicit_bucket_boundaries_advisory=self._bounds
        )


class _State:
    """Where this process is read; module-wide, because events count everywhere."""

    provider: "MeterProvider | None" = None
    server: Any = None


def configure(service_name: str, address: str = "", *, required: bool = True) -> str:
    """Sends metrics over OTLP if an endpoint is set, and serves them to Prometheus at `address`
    (`host:port`) if there is one. Returns where they are served, empty for nowhere.

    Without either nothing is read, and histograms record nothing. An address that is taken raises
    OSError if it is `required`. Call `shutdown` at the end.
    """
    sends = any(os.environ.get(name) for name in _ENDPOINTS)
    if not sends and not address:
        return ""
    # Imported only where they are used.
    from opentelemetry.sdk.metrics import MeterProvider

    from foundation import measures

    shutdown()
    served = ""
    readers: list[Any] = [_sending()] if sends else []
    if address:
        reader, registry = _scraped()
        served = _serve(address, registry, required)
        readers.append(reader)
    resource = telemetry.resource(service_name)
    provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    meter = provider.get_meter("counterfoil")
    for instrument in measures.ALL:
        instrument.register(meter)
    _State.provider = provider
    return served


def shutdown() -> None:
    """Sends what is left, for 2 s at most, and serves nothing more."""
    provider, _State.provider = _State.provider, None
    server, _State.server = _State.server, None
    if server is not None:
        server.shutdown()
        server.server_close()
    if provider is not None:
        sending = threading.Thread(target=provider.shutdown, name="metrics", daemon=True)
        sending.start()
        sending.join(_FLUSH_S)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"COUNTERFOIL_METRICS_ADDRESS: must be host:port or off, got {address!r}")
    return host.strip("[]"), int(port)


def _sending() -> Any:
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return PeriodicExportingMetricReader(OTLPMetricExporter())


def _scraped() -> tuple[Any, Any]:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import GC_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry

    registry = CollectorRegistry()
    registry.register(PROCESS_COLLECTOR)
    registry.register(GC_COLLECTOR)
    return PrometheusMetricReader(registry=registry), registry


def _serve(address: str, registry: Any, required: bool) -> str:
    from prometheus_client import start_http_server

    host, port = split_address(address)
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        if required:
            raise OSError(f"metrics cannot be served at {address}: {error}") from error
        _log.warning("metrics are not served: the address is taken", address=address)
        return ""
    _State.server = server
    return f"{host}:{server.server_port}"
