"""Generated from the contracts of `counterfoil.registry.v1`."""
