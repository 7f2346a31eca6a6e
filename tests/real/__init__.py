"""Tests that put the server beside real clients, a real Prometheus and a real browser."""
