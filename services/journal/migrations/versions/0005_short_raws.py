"""A large raw outcome that nobody needs any more may become as short as its sealed digest."""

from alembic import op

revision = "0005_short_raws"
down_revision = "0004_redactions"

# Receipts (1) and late outcomes (3); a decided one is short from the start.
_ONLY_ERASE = """
CREATE OR REPLACE FUNCTION journal.only_erase() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.raw IS NULL AND NEW.projection IS NULL THEN
        OLD.raw := NULL;
        OLD.projection := NULL;
        IF NEW IS NOT DISTINCT FROM OLD THEN
            RETURN NEW;
        END IF;
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.role IN (1, 3)
       AND length(NEW.raw) <= 200 AND length(OLD.raw) > 100000
    THEN
        OLD.raw := NEW.raw;
        IF NEW IS NOT DISTINCT FROM OLD THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'outcomes are append-only';
END $$
"""


def upgrade() -> None:
    """Replace the trigger's function."""
    op.execute(_ONLY_ERASE)
