"""Generated from the contracts of `counterfoil.registry`."""
