"""The types of the compiled kernel: those of its twin, and what tests ask it."""

from timestone.open_records import OpenRecords as OpenRecords
from timestone.open_records import SegmentRecords as SegmentRecords
from timestone.pure_kernel import Buffer
from timestone.pure_kernel import NumberedNames as NumberedNames
from timestone.pure_kernel import entry_crcs as entry_crcs
from timestone.pure_kernel import fill_entries as fill_entries
from timestone.pure_kernel import fitting as fitting
from timestone.pure_kernel import gathered as gathered
from timestone.pure_kernel import proven_count as proven_count
from timestone.pure_kernel import pwritev as pwritev
from timestone.pure_kernel import valid_count as valid_count
from timestone.pure_kernel import write_records as write_records

INTERFACE: int
CRC32C_BY_INSTRUCTION: bool

def crc32c(data: Buffer, crc: int = 0) -> int: ...
def crc32c_portable(data: Buffer, crc: int = 0) -> int: ...
