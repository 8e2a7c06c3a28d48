"""`python -m paritygate`: the command line, in the interpreter that is running."""

from paritygate.cli import main

if __name__ == "__main__":
    main()
