"""Alembic's environment for every service.

Run by `foundation.storage.migrate`, which has opened the transaction and named the service.
"""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table_schema=context.config.attributes["service"],
)
context.run_migrations()
