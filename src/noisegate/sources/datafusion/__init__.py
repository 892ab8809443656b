"""Parquet files that Apache DataFusion reads, in this process: a second embedded engine."""
