"""`counterfoil import`: an exported session comes to live here."""
