"""Run the experiments of the chapter's notebook and put what they print and draw into the README.

    python chapters/02_loader/figures/measure.py            print, change nothing
    python chapters/02_loader/figures/measure.py --write    also figures/*.svg and README.md

Run it while nothing else uses the machine, and while no other program has the model's file mapped:
pages that somebody uses cannot be dropped, and reading would be timed without the disk.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from measure_kit import main

if __name__ == "__main__":
    main(2)
