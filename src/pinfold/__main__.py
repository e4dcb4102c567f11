"""The command line's beginning: to the server of the store where one runs, else into this process."""

import sys


def main() -> int:
    """Run the command of this process. Return its exit status, or end the process with it."""
    from pinfold.doors.client import forward

    try:
        status, carried = forward(sys.argv[1:])
    except KeyboardInterrupt:
        return 130
    if status is None:
        from pinfold.doors.cli import main as run

        return run(carried=carried)
    import os

    os._exit(status)  # all is printed; taking the interpreter apart takes longer than the answer did


if __name__ == "__main__":  # a spawned worker imports this module again
    sys.exit(main())
