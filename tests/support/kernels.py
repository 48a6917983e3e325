"""Mark of tests of what only the compiled kernel does."""

import pytest

from timestone.kernel import loops

compiled_only = pytest.mark.skipif(
    bool(loops.REASON), reason="the Python kernel has no path of its own for it"
)
