"""Measures the live service: real broker processes on loopback, beside Mosquitto and SQLite."""
