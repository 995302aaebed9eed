"""Generated from the contracts of `counterfoil.tools.v1`."""
