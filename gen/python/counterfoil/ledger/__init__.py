"""Generated from the contracts of `counterfoil.ledger`."""
