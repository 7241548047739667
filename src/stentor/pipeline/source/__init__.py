"""The source: the journals of many brokers as one table, for batches and for streams."""
