"""Wrong versions of chapter 06's definitions, in the order of its exercises."""

from tests.misconceptions.batcher.static import *  # noqa: F403, I001
from tests.misconceptions.batcher.life import *  # noqa: F403
from tests.misconceptions.batcher.queue import *  # noqa: F403
from tests.misconceptions.batcher.admission import *  # noqa: F403
from tests.misconceptions.batcher.chunks import *  # noqa: F403
from tests.misconceptions.batcher.ending import *  # noqa: F403
from tests.misconceptions.batcher.books import *  # noqa: F403
from tests.misconceptions.batcher.steps import *  # noqa: F403
