"""`python -m tokenline` is `tokenline`."""

from tokenline.cli import main

main()
