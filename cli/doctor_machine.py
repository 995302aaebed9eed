"""What the doctor can see without asking anybody: packages, the data folder, keys."""

import fcntl
import os
import shutil
import stat
import sys
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path

from cli import doctor_findings as judge
from cli.doctor_findings import Finding
from foundation.datafolder import SERVICE_KEY_CHARACTERS_MIN, SERVICE_KEY_NAME
from foundation.settings import Settings
from foundation.storage import ConfigurationError, SealRing

_REPO = Path(__file__).resolve().parent.parent


def look(settings: Settings, *, embedded: bool) -> Iterable[Finding]:
    """Everything about this machine."""
    yield judge.python(sys.version_info[:2])
    yield _packages()
    if embedded:
        yield _folder(settings.data_dir)
    yield _disk(settings.data_dir)
    yield _api_key(settings)
    yield _seal_keys(settings, embedded=embedded)
    yield _service_key(settings, embedded=embedded)


def _packages() -> Finding:
    lock = _REPO / "requirements.lock"
    if not lock.exists():
        return judge.skipped("packages", "no requirements.lock: this is not a checkout")
    installed = {judge.normalised(one.name): one.version for one in distributions()}
    return judge.packages(lock.read_text().splitlines(), installed)


def _folder(path: Path) -> Finding:
    if not path.exists():
        return judge.ok("data folder", f"{path.absolute()} is made at the first start")
    mode = stat.S_IMODE(path.stat().st_mode)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        advice = f"Give it to the user who runs this: chown -R $USER {path}"
        return judge.failed("data folder", f"{path.absolute()} is not ours", advice)
    if mode & 0o077:
        found = f"{path.absolute()} has mode {mode:o}"
        return judge.failed("data folder", found, f"Others may look in: chmod 700 {path}")
    owner = _owner(path / "lock")
    return judge.ok("data folder", f"{path.absolute()}, {owner}")


def _owner(lock: Path) -> str:
    """Who holds the folder."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return "never used"
    except BlockingIOError:
        return f"held by process {lock.read_text().strip()}"
    return "free"


def _disk(path: Path) -> Finding:
    there = next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())
    return judge.disk(shutil.disk_usage(there).free, str(there))


def _api_key(settings: Settings) -> Finding:
    try:
        settings.refuse_development_key()
    except ValueError as error:
        return judge.failed("API key", str(error), "export COUNTERFOIL_API_KEY=<a key of your own>")
    return judge.ok("API key", "set, or the development key on loopback")


def _seal_keys(settings: Settings, *, embedded: bool) -> Finding:
    path = settings.seal_keys_file or settings.data_dir / "seal_keys.json"
    if path.exists():
        try:
            return judge.ok("seal keys", f"{path}, active {SealRing.load(path).active}")
        except (ConfigurationError, OSError) as error:
            return judge.failed("seal keys", str(error), "Restore the file from your copy.")
    if settings.seal_keys_file is None and not embedded:
        advice = "Set COUNTERFOIL_SEAL_KEYS_FILE; make one with counterfoil seal-keys generate."
        return judge.failed("seal keys", "no file is set", advice)
    if (settings.data_dir / "postgres" / "cluster").exists():
        advice = "Restore it from your copy: without it nothing in the database opens."
        return judge.failed("seal keys", f"{path} is missing", advice)
    if settings.seal_keys_file is not None:
        advice = f"counterfoil seal-keys generate {path}"
        return judge.failed("seal keys", f"{path} is missing", advice)
    return judge.ok("seal keys", "made at the first start")


def _service_key(settings: Settings, *, embedded: bool) -> Finding:
    path = settings.service_key_file or settings.data_dir / SERVICE_KEY_NAME
    if not path.exists():
        if embedded and settings.service_key_file is None:
            return judge.ok("service key", "made at the first start")
        what = f"a file with {SERVICE_KEY_CHARACTERS_MIN} or more random characters"
        advice = f"Set COUNTERFOIL_SERVICE_KEY_FILE to {what}."
        return judge.failed("service key", f"{path} is missing", advice)
    try:
        key = path.read_text().strip()
    except OSError as error:
        return judge.failed("service key", str(error), f"Let the user who runs this read {path}.")
    if len(key) < SERVICE_KEY_CHARACTERS_MIN:
        advice = f"Write at least {SERVICE_KEY_CHARACTERS_MIN} random characters to {path}."
        return judge.failed("service key", f"{path} is too short", advice)
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        return judge.warning("service key", f"others may read {path}", f"chmod 600 {path}")
    return judge.ok("service key", str(path))
