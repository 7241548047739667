"""What routing costs: messages, table entries and time, one module for each question.

Messages and entries are counted in simulated networks and are the same in every run; only the time
per change depends on the machine. Every run is checked against what should have been delivered.
"""
