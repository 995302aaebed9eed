"""Calls between services: one pipeline for real gRPC and for the in-process channel."""
