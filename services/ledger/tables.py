"""The one collection of the ledger's tables."""

from sqlalchemy import MetaData

metadata = MetaData(schema="ledger")
