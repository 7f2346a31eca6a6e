"""Wrong versions of chapter 01's definitions, in the order of its exercises."""

from tests.misconceptions.environment.gpu import *  # noqa: F403,I001
from tests.misconceptions.environment.timing import *  # noqa: F403
from tests.misconceptions.environment.sizing import *  # noqa: F403
from tests.misconceptions.environment.running import *  # noqa: F403
from tests.misconceptions.environment.fitting import *  # noqa: F403
from tests.misconceptions.environment.integrity import *  # noqa: F403
