"""Tables of made-up rows that answer many questions like the real ones, with a guarantee."""
