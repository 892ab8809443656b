"""Which of many counts exceed a threshold."""
