"""`counterfoil seal-keys`: the key ring file that seals stored data."""

from pathlib import Path
from typing import Annotated

import typer

from foundation.storage import ConfigurationError, SealRing

app = typer.Typer(no_args_is_help=True, help="Make and rotate the keys of data at rest.")

File = Annotated[Path, typer.Argument(help="Key ring, the file of COUNTERFOIL_SEAL_KEYS_FILE.")]


@app.command()
def generate(file: File) -> None:
    """Create a key ring (mode 0600) with one key; refuses to replace a file."""
    try:
        ring = SealRing.generate(file)
    except OSError as error:
        raise _refused(error) from error
    typer.echo(f"{file} holds the key {ring.active}. Keep a copy: without it nothing opens.")


@app.command()
def rotate(file: File) -> None:
    """Add a key that seals from the next start on; the older ones stay and open what they sealed.

    Give every process the new file and start it again. In a split deployment, give all of them the
    file before the first one seals with the new key: one that lacks it cannot open what it sealed.
    """
    try:
        ring = SealRing.rotate(file)
    except (OSError, ConfigurationError) as error:
        raise _refused(error) from error
    typer.echo(f"{file}: {ring.active} seals from the next start on; older keys go on opening.")


def _refused(error: Exception) -> typer.Exit:
    typer.echo(f"counterfoil: {error}", err=True)
    return typer.Exit(1)
