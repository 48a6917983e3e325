"""Sealed segments in object storage: what is uploaded, how it is read back, and when it is deleted.

Knows the engine; the engine does not know it, and calls what is attached to a store through narrow protocols.
Nothing here knows a front, Spark or the command line. Read `layout` first: which objects there are; then `manifest`:
what a log consists of.
"""

import importlib as _importlib
from typing import TYPE_CHECKING, Any

from .config import TierConfig

if TYPE_CHECKING:
    from .tailed_view import TailedView, view_with_tail
    from .tier import StoreTier
    from .view import BucketView, view_bucket

__all__ = ["BucketView", "StoreTier", "TailedView", "TierConfig", "view_bucket", "view_with_tail"]

_MODULES = {
    "BucketView": "view",
    "StoreTier": "tier",
    "TailedView": "tailed_view",
    "view_bucket": "view",
    "view_with_tail": "tailed_view",
}


def __getattr__(name: str) -> Any:
    """Import the tier and views when they are used: a server without them needs only the settings."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_importlib.import_module(f".{_MODULES[name]}", __name__), name)
