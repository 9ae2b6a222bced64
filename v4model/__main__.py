"""`python -m v4model`."""

from v4model.cli import main

if __name__ == "__main__":
    main()
