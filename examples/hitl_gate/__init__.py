"""Gate an agent's actions on an application and a human: see `main.py` and `README.md`."""
