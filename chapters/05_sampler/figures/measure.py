"""Run the experiments of the chapter's notebook and put what they print and draw into the README.

    python chapters/05_sampler/figures/measure.py            print, change nothing
    python chapters/05_sampler/figures/measure.py --write    also figures/*.svg and README.md

The cells are those of notebook.py; the engine is the one in solutions/. So a reader's notebook
and the README come from the same lines. Run it while the machine does nothing else.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from measure_kit import main

if __name__ == "__main__":
    main(5)
