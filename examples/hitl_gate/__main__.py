"""`python -m examples.hitl_gate`."""

import sys

from examples.hitl_gate.main import main

sys.exit(main())
