"""CRC-32C (Castagnoli; RFC 3720, appendix B.4), of the library that serves where no kernel is compiled."""

from crc32c import crc32c

__all__ = ["crc32c"]
