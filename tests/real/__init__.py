"""The server beside real clients, a real Prometheus and a browser; drills and capstone, whole."""
