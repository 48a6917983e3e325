"""Which worker runs which tests next, when tests run side by side."""

from typing import Any

from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]


class GroupScheduling(LoadGroupScheduling):  # type: ignore[misc]  # the library has no types
    """Groups in the order of the collection, each run by one worker. Forgets a group once it has been run: at the end
    of each test the library counts the open tests of all groups that its worker ever got, which is quadratic."""

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        super().mark_test_complete(node, item_index, duration)
        group = self._split_scope(self.registered_collections[node][item_index])
        if all(self.assigned_work[node][group].values()):
            del self.assigned_work[node][group]
