"""Trees, forests and models of classes by counts."""
