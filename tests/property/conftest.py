"""Tables and questions of the unit tests are used here too."""

import sys
from pathlib import Path

if (unit := str(Path(__file__).parent.parent / "unit")) not in sys.path:
    sys.path.insert(0, unit)
