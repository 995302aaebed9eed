"""Generated from the contracts of `counterfoil.context`."""
