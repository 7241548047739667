"""The tests of the client borrow the certificates of the transports' tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "transport"))
