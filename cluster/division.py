"""Division of topics and clients into the shards of a cluster, by the CRC-32C of a key.

The key of a client is its client id. That of a topic is what the first matching template finds in it, and the whole
topic if none matches: with the template `devices/{key}/#` all topics of a device are in one shard, which is that of a
client with the device's id."""

from collections.abc import Sequence
from dataclasses import dataclass

from timestone.filters import validate_filter
from timestone.kernel.crc import crc32c

KEY = "{key}"
MOST_TEMPLATES = 16


def check_template(template: str) -> str:
    """Return a template. Raises ValueError unless it has levels of a topic filter, `{key}` and `#` at the end."""
    levels = template.split("/")
    if levels[-1:] != ["#"] or levels[-2:-1] != [KEY] or levels.count(KEY) != 1:
        raise ValueError(f"invalid key {template!r}: expected {KEY}/# at the end, as in devices/{KEY}/#")
    validate_filter(template)
    if "{" in template.replace(KEY, ""):
        raise ValueError(f"invalid key {template!r}: expected one {KEY}")
    return template


@dataclass(frozen=True, slots=True)
class Division:
    """Number of shards, and templates of keys in order."""

    count: int
    templates: Sequence[str] = ()

    def of_client(self, client_id: str) -> int:
        """Return the shard of a client."""
        return self._of_key(client_id)

    def of_topic(self, topic: str) -> int:
        """Return the shard of a topic."""
        levels = topic.split("/")
        for template in self.templates:
            prefix = template.split("/")[:-2]
            if len(levels) > len(prefix) and _match(prefix, levels) and not _is_hidden(prefix, levels):
                return self._of_key(levels[len(prefix)])
        return self._of_key(topic)

    def of_filter(self, pattern: str) -> int | None:
        """Return the shard of all topics that match a filter; None if they may be in several."""
        if self.count == 1:
            return 0
        levels = pattern.split("/")
        fixed = next((number for number, one in enumerate(levels) if one in ("+", "#")), len(levels))
        if fixed == len(levels):
            return self.of_topic(pattern)
        for template in self.templates:
            prefix = template.split("/")[:-2]
            if fixed <= len(prefix):
                return None  # some of the topics may match it, each with a key of its own
            if _match(prefix, levels) and not _is_hidden(prefix, levels):
                return self._of_key(levels[len(prefix)])
        return None

    def _of_key(self, key: str) -> int:
        return crc32c(key.encode()) % self.count


def _match(prefix: Sequence[str], levels: Sequence[str]) -> bool:
    return all(one in ("+", level) for one, level in zip(prefix, levels, strict=False))


def _is_hidden(prefix: Sequence[str], levels: Sequence[str]) -> bool:
    """Return whether a topic begins with `$`, which no wildcard stands for."""
    return levels[0].startswith("$") and (prefix[:1] or ["+"])[0] != levels[0]
