"""How the embedded PostgreSQL is run. Given on the command line, so that no file overrides them."""

SUPERUSER = "counterfoil"
DATABASE = "counterfoil"

DURABLE = {
    # A commit that was answered is on disk; storage refuses to open a database without these.
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
}

PRIVATE = {
    # Only the Unix socket in a folder of mode 0700, and only its owner (peer).
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
}

SIZED = {
    # Eight services with a pool each, on a small machine.
    "max_connections": "200",
    "shared_buffers": "128MB",
    "work_mem": "8MB",
    "maintenance_work_mem": "64MB",
    # Recycled WAL files make the fsync of a commit cheap; the limit keeps recovery within seconds.
    "min_wal_size": "192MB",
    "max_wal_size": "768MB",
    "wal_buffers": "16MB",
    "max_wal_senders": "2",
    # Fewer helper processes: there are short statements only.
    "io_method": "sync",
    "max_logical_replication_workers": "0",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %q%a ",
    "log_checkpoints": "off",
}


def command_line(socket_folder: str, sync_method: str) -> list[str]:
    """`-c name=value` for every setting; `sync_method` is one of `syncing`."""
    settings = {**SIZED, **PRIVATE, **DURABLE, "unix_socket_directories": f'"{socket_folder}"'}
    settings["recovery_init_sync_method"] = sync_method
    return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
