"""Wrong versions of chapter 03's definitions, in the order of its exercises."""

from tests.misconceptions.quantizer.rows import *  # noqa: F403,I001
from tests.misconceptions.quantizer.groups import *  # noqa: F403
from tests.misconceptions.quantizer.packing import *  # noqa: F403
from tests.misconceptions.quantizer.weights import *  # noqa: F403
from tests.misconceptions.quantizer.checkpoint import *  # noqa: F403
from tests.misconceptions.quantizer.saving import *  # noqa: F403
from tests.misconceptions.quantizer.quality import *  # noqa: F403
from tests.misconceptions.quantizer.perplexity import *  # noqa: F403
from tests.misconceptions.quantizer.grid import *  # noqa: F403
