"""Generated from the contracts of `counterfoil.journal.v1`."""
