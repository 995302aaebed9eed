"""Generated from the contracts of `counterfoil.types.v1`."""
