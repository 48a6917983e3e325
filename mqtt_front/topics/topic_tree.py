"""Tree of topic names by level, which finds the topics that match a filter without visiting the others.

The reverse of `timestone.filters.FilterTree`, which finds the filters that match a topic."""

from collections.abc import Iterator


class _Node:
    __slots__ = ("children", "topic")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.topic: str | None = None


class TopicTree:
    """Set of topic names. Iterative, so deep topics need no stack; a lookup visits only branches that can match."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, topic: str) -> None:
        """Add a topic. No effect if it is present."""
        node = self._root
        for level in topic.split("/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        node.topic = topic

    def remove(self, topic: str) -> None:
        """Remove a topic and the branches that this empties. No effect if it is absent."""
        path: list[tuple[_Node, str]] = []
        node = self._root
        for level in topic.split("/"):
            child = node.children.get(level)
            if child is None:
                return
            path.append((node, level))
            node = child
        node.topic = None
        for parent, level in reversed(path):
            child = parent.children[level]
            if child.children or child.topic is not None:
                return
            del parent.children[level]

    def matching(self, topic_filter: str) -> Iterator[str]:
        """Yield the topics that match a valid filter, each once. A leading wildcard matches no topic that begins
        with `$` [MQTT-4.7.2-1]."""
        levels = topic_filter.split("/")
        open_nodes = [(self._root, 0)]
        while open_nodes:
            node, depth = open_nodes.pop()
            if depth == len(levels):
                if node.topic is not None:
                    yield node.topic
                continue
            level = levels[depth]
            if level == "#":
                yield from _below(node, guarded=depth == 0)
            elif level == "+":
                open_nodes += [
                    (child, depth + 1)
                    for name, child in node.children.items()
                    if depth or not name.startswith("$")
                ]
            elif (child := node.children.get(level)) is not None:
                open_nodes.append((child, depth + 1))


def _below(top: _Node, *, guarded: bool) -> Iterator[str]:
    """Yield the topic of a node, which `#` matches too [section 4.7.1.2], and all topics below it. guarded: except
    those whose first level, directly below, begins with `$`."""
    open_nodes = [top]
    if guarded:
        open_nodes = [child for name, child in top.children.items() if not name.startswith("$")]
    while open_nodes:
        node = open_nodes.pop()
        if node.topic is not None:
            yield node.topic
        open_nodes += node.children.values()
