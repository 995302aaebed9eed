"""Generated from the contracts of `counterfoil.tools`."""
