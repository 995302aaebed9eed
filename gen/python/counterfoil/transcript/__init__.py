"""Generated from the contracts of `counterfoil.transcript`."""
