"""The whole tour: run it with `./dev demo`."""

import matching
import routing

if __name__ == "__main__":
    matching.main()
    routing.main()
