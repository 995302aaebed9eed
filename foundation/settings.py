"""Settings of every process, from the environment (`COUNTERFOIL_…`)."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from foundation.egress.allowing import parse_allowed

DEVELOPMENT_KEY = "cf-local-development"
"""Bootstrap key when none is set; accepted only while everything listens on loopback."""

SERVICES = ("registry", "ledger", "transcript", "journal", "context", "files", "tools")
"""The services that own state, in the order in which they start."""

_LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")


class Settings(BaseSettings):
    """What an operator may set. A wrong value stops the process with the field's name."""

    model_config = SettingsConfigDict(env_prefix="COUNTERFOIL_", extra="ignore")

    host: str = Field("127.0.0.1", description="Address that REST and gRPC listen on.")
    port: int = Field(8080, ge=0, le=65535, description="REST and SSE; 0 for any free port.")
    grpc_port: int = Field(8081, ge=0, le=65535, description="gRPC; 0 for any free port.")
    data_dir: Path = Field(Path(".counterfoil"), description="Data folder of embedded processes.")
    api_key: SecretStr = Field(SecretStr(DEVELOPMENT_KEY), description="Bootstrap workspace key.")
    model_base_url: str = Field("", description="Provider, without /v1; empty: offline model.")
    model_api_key: SecretStr = Field(SecretStr(""), description="Credential for the provider.")
    model_auth: Literal["x-api-key", "bearer"] = Field(
        "x-api-key", description="How the credential is sent."
    )
    model_profile: str = Field("", description="Capability profile; empty: chosen by base URL.")
    model_window_tokens: int = Field(
        0, ge=0, le=100_000_000, description="Window of the endpoint's models; 0: as known of each."
    )
    model_retries_max: int = Field(
        3, ge=0, le=20, description="Retries of a failing provider call before its turn ends."
    )
    model_retry_ms: int = Field(
        1000, ge=1, le=3_600_000, description="Wait before the first retry; doubles each time."
    )
    model_retry_ms_max: int = Field(
        60_000, ge=1, le=3_600_000, description="Longest wait, also where the provider asks more."
    )
    seal_keys_file: Path | None = Field(None, description="Key ring for data at rest.")
    context_pruning: bool = Field(
        True, description="Archive results that the model has read, where that averts a summary."
    )
    redaction_file: Path | None = Field(
        None, description="Patterns that no tool result shows, one a line."
    )
    service_key_file: Path | None = Field(None, description="Credential between services.")
    context_summary: Literal["extractive", "model"] = Field(
        "extractive", description="Who writes the summary that replaces old history."
    )
    tools_module: str = Field("", description="Module with register(registry): platform tools.")
    egress_allow: str = Field(
        "", description="host:port or networks, comma-separated, let out though not public."
    )
    model_record_dir: str = Field("", description="Where the offline model records requests.")
    log_level: Literal["debug", "info", "warning"] = Field(
        "info", description="Least severe log lines of ours; libraries stay at warning."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="Form of log lines; auto: columns on a terminal, else JSON."
    )
    metrics_address: str = Field(
        "", description="host:port for Prometheus, or off; empty: as in telemetry.md."
    )
    runner_capacity: int = Field(64, ge=1, le=10_000, description="Turns a runner holds at once.")

    rate_limit_create: int = Field(
        0, ge=0, le=1_000_000, description="Writes a key may make in a minute; 0: no limit."
    )
    rate_limit_read: int = Field(
        0, ge=0, le=1_000_000, description="Reads a key may make in a minute; 0: no limit."
    )

    s3_endpoint: str = Field("", description="URL of an S3 object store; empty: the embedded one.")
    s3_access_key: SecretStr = Field(SecretStr(""), description="Access key of the object store.")
    s3_secret_key: SecretStr = Field(SecretStr(""), description="Secret key of the object store.")
    s3_bucket: str = Field("counterfoil", description="Bucket that is ours alone; must exist.")
    s3_region: str = Field("us-east-1", description="Region that requests are signed for.")

    registry_address: str = ""
    ledger_address: str = ""
    transcript_address: str = ""
    journal_address: str = ""
    context_address: str = ""
    files_address: str = ""
    tools_address: str = ""

    registry_database_url: SecretStr = SecretStr("")
    ledger_database_url: SecretStr = SecretStr("")
    transcript_database_url: SecretStr = SecretStr("")
    journal_database_url: SecretStr = SecretStr("")
    context_database_url: SecretStr = SecretStr("")
    files_database_url: SecretStr = SecretStr("")
    tools_database_url: SecretStr = SecretStr("")

    @field_validator("egress_allow")
    @classmethod
    def _check_egress_allow(cls, text: str) -> str:
        parse_allowed(text)
        return text

    def address_of(self, service: str) -> str:
        """`host:port` of a remote service; empty when it is not set."""
        return str(getattr(self, f"{service}_address"))

    def database_url_of(self, service: str) -> str:
        """DSN of a service's database; empty when it is not set."""
        secret: SecretStr = getattr(self, f"{service}_database_url")
        return secret.get_secret_value()

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach us."""
        return self.host in _LOOPBACK

    def refuse_development_key(self) -> None:
        """Raises ValueError when the well-known key would be reachable from outside."""
        if self.api_key.get_secret_value() == DEVELOPMENT_KEY and not self.on_loopback:
            raise ValueError(
                f"COUNTERFOIL_API_KEY is the well-known development key, and COUNTERFOIL_HOST"
                f" is {self.host}: set a key of your own before you listen beyond loopback"
            )
