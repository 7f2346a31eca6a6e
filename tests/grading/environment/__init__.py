"""The cases of chapter 01, in the order of its exercises."""

from tests.grading.environment.gpu import *  # noqa: F403,I001
from tests.grading.environment.timing import *  # noqa: F403
from tests.grading.environment.sizing import *  # noqa: F403
from tests.grading.environment.fitting import *  # noqa: F403
from tests.grading.environment.integrity import *  # noqa: F403
