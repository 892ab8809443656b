"""Noise by smooth sensitivity, propose-test-release, and graph statistics."""
