"""TLS trusts whom the machine trusts, and nobody whom the environment names."""

import ssl
from pathlib import Path

import pytest

from foundation.trust import verifying


def test_a_machine_without_certificates_trusts_the_usual_authorities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = ssl.DefaultVerifyPaths("", "", "", str(tmp_path / "no"), "", str(tmp_path))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nothing)
    assert verifying().cert_store_stats()["x509_ca"] > 50
