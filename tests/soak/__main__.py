"""`make soak`: open streams and writers on a split system while each part of it is killed."""

import argparse
import sys
import time
from collections.abc import Sequence

import uvloop

from bench.server import many_files
from tests.offline_model.support import running
from tests.soak.run import Outcome, Plan, soak
from tests.support.model import Model
from tests.support.postgres import session_postgres
from tests.support.zygote import Zygote


class _Options(argparse.Namespace):
    streams: int
    writers: int
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 when something did not hold."""
    plan = Plan()
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--streams", type=int, default=plan.streams, help="open event streams")
    parser.add_argument("--writers", type=int, default=plan.writers, help="clients that write")
    parser.add_argument("--seconds", type=float, default=plan.seconds, help="length of the load")
    chosen = parser.parse_args(arguments, namespace=_Options())
    outcome = _run(Plan(chosen.streams, chosen.writers, chosen.seconds))
    sys.stdout.write(outcome.summary() + "\n")
    return 1 if outcome.problems else 0


def _run(plan: Plan) -> Outcome:
    began = time.monotonic()

    def say(line: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began:6.1f}  {line}\n")

    many_files()
    say("starting")
    zygote = Zygote.start()
    try:
        with session_postgres() as postgres, running() as model:
            return uvloop.run(soak(plan, zygote, Model(model.url), postgres, say))
    finally:
        zygote.stop()


if __name__ == "__main__":
    sys.exit(main())
