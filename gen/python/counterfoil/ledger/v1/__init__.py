"""Generated from the contracts of `counterfoil.ledger.v1`."""
