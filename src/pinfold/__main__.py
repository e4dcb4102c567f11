"""`python -m pinfold`: the command line."""

import sys

from pinfold.doors.cli import main

if __name__ == "__main__":  # a spawned worker imports this module again
    sys.exit(main())
