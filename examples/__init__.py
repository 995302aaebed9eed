"""Runnable examples. Each is a program of its own that needs nothing but the official SDK."""
