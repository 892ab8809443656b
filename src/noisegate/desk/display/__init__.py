"""How results are shown: numbers, tables, charts, notebooks."""
