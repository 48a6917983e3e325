from tests.support.quick_directory import quick_directory

__all__ = ["quick_directory"]
