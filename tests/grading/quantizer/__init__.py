"""The cases of chapter 03, in the order of its exercises."""

from tests.grading.quantizer.rows import *  # noqa: F403,I001
from tests.grading.quantizer.groups import *  # noqa: F403
from tests.grading.quantizer.packing import *  # noqa: F403
from tests.grading.quantizer.weights import *  # noqa: F403
from tests.grading.quantizer.checkpoint import *  # noqa: F403
from tests.grading.quantizer.saving import *  # noqa: F403
from tests.grading.quantizer.quality import *  # noqa: F403
from tests.grading.quantizer.grid import *  # noqa: F403
