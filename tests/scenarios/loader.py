"""The scenarios of chapter 02."""

from tests.scenarios.loader_files import *  # noqa: F403
from tests.scenarios.loader_models import *  # noqa: F403
