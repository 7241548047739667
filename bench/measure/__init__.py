"""The measurements, one module each. All give plain values that go into the results as JSON."""
