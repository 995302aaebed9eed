"""Everything that is measured. `docs/operating/telemetry.md` lists the same; a test compares."""

from foundation.metrics import Counter, Gauge, Histogram, Instrument

TURNS = Counter(
    "counterfoil.turns",
    "{turn}",
    "Claims on turns that ended: parked, done, interrupted, settled or quarantined.",
    "outcome",
)
TAKEOVERS = Counter(
    "counterfoil.turns.takeovers",
    "{claim}",
    "Claims on turns whose last owner left without a commit.",
)
QUARANTINES = Counter(
    "counterfoil.turns.quarantines",
    "{turn}",
    "Turns that were given up: lost too often, or stored data did not match.",
)
FENCES = Counter(
    "counterfoil.fences",
    "{call}",
    "Calls that were refused because another owner has taken the thread.",
    "service",
)
QUEUE_AGE = Gauge(
    "counterfoil.queue.age",
    "s",
    "How long the oldest turn that could run has waited for a runner; 0 when none waits.",
)
STREAMS = Gauge(
    "counterfoil.streams.open",
    "{stream}",
    "Open event streams, over REST at the gateway and subscriptions at the ledger.",
    "at",
)
RUNNER_TURNS = Gauge("counterfoil.runner.turns", "{turn}", "Turns that this runner holds.")
REQUESTS = Counter(
    "counterfoil.http.requests",
    "{request}",
    "Answered REST requests; a stream counts when it ends. No route: an unknown path.",
    "method",
    "route",
    "status",
)
PREFIX_BREAKS = Counter(
    "counterfoil.context.prefix_breaks",
    "{request}",
    "Requests to the model that do not begin with the thread's one before; `bug` is always 0.",
    "cause",
)
RATE_LIMITED = Counter(
    "counterfoil.http.requests.rate_limited", "{request}", "REST requests answered with 429."
)
CONNECTIONS = Gauge(
    "db.client.connection.count",
    "{connection}",
    "Connections to PostgreSQL that are in use.",
    "db.client.connection.pool.name",
    "db.client.connection.state",
)
MODEL_DURATION = Histogram(
    "gen_ai.client.operation.duration",
    "s",
    "Duration of provider calls, from the request to the end of the answer.",
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "error.type",
    bounds=(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
)
MODEL_TOKENS = Histogram(
    "gen_ai.client.token.usage",
    "{token}",
    "Tokens of provider calls.",
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.token.type",
    bounds=tuple(float(4**power) for power in range(14)),
)

ALL: tuple[Instrument, ...] = (
    TURNS,
    TAKEOVERS,
    QUARANTINES,
    FENCES,
    QUEUE_AGE,
    STREAMS,
    RUNNER_TURNS,
    REQUESTS,
    RATE_LIMITED,
    PREFIX_BREAKS,
    CONNECTIONS,
    MODEL_DURATION,
    MODEL_TOKENS,
)
