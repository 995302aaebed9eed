"""`counterfoil doctor`: looks at an installation and says what to do."""

from dataclasses import asdict

import typer

from cli import doctor_findings, doctor_machine, doctor_peers, output
from cli.composition import STATEFUL
from cli.doctor_findings import Finding, State
from cli.output import Form
from cli.progress import waiting
from foundation.settings import Settings

_COLUMNS = {"state": "", "check": "CHECK", "found": "FOUND", "advice": "WHAT TO DO"}


async def doctor(settings: Settings, form: Form) -> bool:
    """Prints every finding; True when nothing failed."""
    found = await examine(settings)
    output.rows(form, [asdict(one) for one in found], _COLUMNS, "")
    bad = [one for one in found if one.state is State.FAILED]
    if form is Form.TABLE:
        typer.echo("")
        typer.echo(
            f"{len(bad)} of {len(found)} checks failed." if bad else "Nothing is in the way."
        )
    return not bad


async def examine(settings: Settings) -> list[Finding]:
    """Every finding, in the order in which one would mend them. Changes nothing."""
    embedded = not all(settings.database_url_of(name) for name in STATEFUL)
    offsets: doctor_peers.Offsets = {}
    found = list(doctor_machine.look(settings, embedded=embedded))
    with waiting("Asking PostgreSQL …"):
        found += [one async for one in doctor_peers.databases(settings, offsets, embedded=embedded)]
    with waiting("Asking the object store …"):
        found.append(await doctor_peers.objects(settings))
    with waiting("Asking services …"):
        found += [one async for one in doctor_peers.ports(settings, embedded=embedded)]
    with waiting("Asking the model's endpoint …"):
        found.append(await doctor_peers.model(settings, offsets))
    found.append(doctor_findings.clock(offsets))
    return found
