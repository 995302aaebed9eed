"""A table is exported, or somebody has decided that it is not."""

import importlib

import pytest

LEFT_OUT = {
    "ledger.access": "who looked here",
    "ledger.replays": "answers to requests that came here",
    "transcript.heads": "derived from the entries",
    "transcript.id_map": "derived from the entries",
    "transcript.access": "who looked here",
    "journal.fences": "derived from the ledger's epoch",
    "journal.access": "who looked here",
    "context.fences": "derived from the lines",
    "context.part_keys": "addresses mean nothing elsewhere",
    "context.part_uses": "derived from the parts",
    "context.prefixes": "a copy that can be made again",
    "context.access": "who looked here",
}
PARTS = {
    "ledger": ("services.ledger.export_parts", "PARTS"),
    "transcript": ("services.transcript.export_parts", "PARTS"),
    "journal": ("services.journal.export_parts", "PARTS"),
    "context": ("services.context.export_parts", "ALL"),
}


@pytest.mark.parametrize("service", PARTS)
def test_every_table_is_exported_or_left_out_on_purpose(service: str) -> None:
    module, name = PARTS[service]
    parts = getattr(importlib.import_module(module), name)
    exported = {part.table.fullname for part in parts.values()}
    schema = importlib.import_module(f"services.{service}.schema")
    left_out = {table for table in LEFT_OUT if table.startswith(f"{service}.")}
    assert exported | left_out == set(schema.metadata.tables)
    assert not exported & left_out
    for part in parts.values():
        assert part.columns
