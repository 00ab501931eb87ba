"""Documents for plan.json, good and bad, that differ in the kind of mistake and not in its value."""

from tests.core.corpus.meaning import MEANING
from tests.core.corpus.structure import SHAPE
from tests.core.corpus.syntax import SYNTAX

CASES = [*SYNTAX, *SHAPE, *MEANING]
