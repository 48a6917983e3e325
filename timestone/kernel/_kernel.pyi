"""The types of the compiled kernel: those of its twin, and what tests ask it."""

from timestone.kernel.open_records import OpenRecords as OpenRecords
from timestone.kernel.open_records import SegmentRecords as SegmentRecords
from timestone.kernel.prepared import AssignedTopics as AssignedTopics
from timestone.kernel.prepared import AwaitedBytes as AwaitedBytes
from timestone.kernel.prepared import Budget as Budget
from timestone.kernel.prepared import Columns as Columns
from timestone.kernel.prepared import PausedWrites as PausedWrites
from timestone.kernel.prepared import PreparedCommit as PreparedCommit
from timestone.kernel.prepared import PreparedEnd as PreparedEnd
from timestone.kernel.prepared import PreparedLog as PreparedLog
from timestone.kernel.prepared import PreparedSegment as PreparedSegment
from timestone.kernel.prepared import PreparedTail as PreparedTail
from timestone.kernel.prepared import QueuedBytes as QueuedBytes
from timestone.kernel.prepared import StoredPieces as StoredPieces
from timestone.kernel.prepared import StoredRun as StoredRun
from timestone.kernel.published import ParkedWaiters as ParkedWaiters
from timestone.kernel.published import Published as Published
from timestone.kernel.published import ReaderCursor as ReaderCursor
from timestone.kernel.published import ShownSegment as ShownSegment
from timestone.kernel.published import ShownSegments as ShownSegments
from timestone.kernel.pure import Buffer
from timestone.kernel.pure import DurationCounts as DurationCounts
from timestone.kernel.pure import Lock as Lock
from timestone.kernel.pure import NumberedNames as NumberedNames
from timestone.kernel.pure import drop_spare as drop_spare
from timestone.kernel.pure import encoded_names as encoded_names
from timestone.kernel.pure import entry_crcs as entry_crcs
from timestone.kernel.pure import fill_entries as fill_entries
from timestone.kernel.pure import fitting as fitting
from timestone.kernel.pure import gathered as gathered
from timestone.kernel.pure import now_us as now_us
from timestone.kernel.pure import proven_count as proven_count
from timestone.kernel.pure import pwritev as pwritev
from timestone.kernel.pure import valid_count as valid_count
from timestone.kernel.pure import write_records as write_records

INTERFACE: int
CRC32C_BY_INSTRUCTION: bool

def crc32c(data: Buffer, crc: int = 0) -> int: ...
def crc32c_portable(data: Buffer) -> int: ...
