"""SQLite's calls in this process that remove files and flush directories, shown to recorders.

SQLite's own table of system calls is changed (`xSetSystemCall`), so this works below Python's `sqlite3`, which has no
interface for it. Flushes of files are not in that table.
"""

import _sqlite3
import atexit
import ctypes
import os
import weakref
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import pytest


class Watcher(Protocol):
    """Receives the calls below its root."""

    root: Path

    def unlinking(self, path: Path) -> AbstractContextManager[None]:
        """SQLite removes the file inside the block."""

    def flushing_directory(self, path: Path) -> AbstractContextManager[None]:
        """SQLite flushes the directory inside the block."""


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs` of version 3 (sqlite3.h)."""

    _fields_ = [
        ("version", ctypes.c_int),
        ("file_bytes", ctypes.c_int),
        ("path_bytes_max", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("methods", ctypes.c_void_p * 13),
        (
            "set_system_call",
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
        ),
        ("get_system_call", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)),
    ]


_Unlink = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, use_errno=True)
_OpenDirectory = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int), use_errno=True)
_Close = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, use_errno=True)


class _Calls:
    """The calls that are in SQLite's table while there is a watcher, and those that they pass on to."""

    def __init__(self) -> None:
        library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
        library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        library.sqlite3_vfs_find.argtypes = [ctypes.c_char_p]
        self._vfs = library.sqlite3_vfs_find(None)
        self._watchers: weakref.WeakValueDictionary[Path, Any] = weakref.WeakValueDictionary()
        self._flushing: dict[int, AbstractContextManager[None]] = {}
        self._kept: dict[bytes, Any] = {}
        self._real_unlink = self._real(b"unlink", _Unlink, self._unlink)
        self._real_open = self._real(b"openDirectory", _OpenDirectory, self._open_directory)
        self._real_close = self._real(b"close", _Close, self._close)
        atexit.register(self._restore)

    def watch(self, watcher: Watcher) -> None:
        if not self._watchers:
            self._replace()
        self._watchers[watcher.root] = watcher

    def forget(self, watcher: Watcher) -> None:
        if self._watchers.get(watcher.root) is watcher:
            del self._watchers[watcher.root]
        if not self._watchers:
            self._restore()  # thousands of stores are opened on images, and each call from C takes its time

    def _real(self, name: bytes, kind: Any, call: Any) -> Any:
        """Return SQLite's own call, and keep the one that takes its place."""
        self._kept[name] = kind(call)
        return kind(self._vfs.contents.get_system_call(self._vfs, name))

    def _replace(self) -> None:
        for name, call in self._kept.items():
            self._vfs.contents.set_system_call(self._vfs, name, ctypes.cast(call, ctypes.c_void_p))

    def _restore(self) -> None:
        for name in self._kept:
            self._vfs.contents.set_system_call(self._vfs, name, None)

    def _watcher_of(self, path: Path) -> Watcher | None:
        return next((found for one in (path, *path.parents) if (found := self._watchers.get(one))), None)

    def _unlink(self, name: bytes) -> int:
        path = Path(os.fsdecode(name))
        watcher = self._watcher_of(path)
        with watcher.unlinking(path) if watcher else nullcontext():
            result: int = self._real_unlink(name)
        return result

    def _open_directory(self, name: bytes, fd: Any) -> int:
        """Open the directory of a file, flush it and close it, as SQLite does."""
        result: int = self._real_open(name, fd)
        directory = Path(os.fsdecode(name)).parent
        watcher = self._watcher_of(directory)
        if result == 0 and watcher is not None:
            self._flushing[fd[0]] = watcher.flushing_directory(directory)
            self._flushing[fd[0]].__enter__()
        return result

    def _close(self, fd: int) -> int:
        flushing = self._flushing.pop(fd, None)
        if flushing is not None:
            flushing.__exit__(None, None, None)
        result: int = self._real_close(fd)
        return result


_calls: _Calls | None = None


def watch(watcher: Watcher) -> None:
    """Show the watcher SQLite's calls below its root, until it is freed, or another one has this root.

    Where SQLite is a part of Python without exported symbols, the test is skipped.
    """
    global _calls
    if _calls is None:
        try:
            _calls = _Calls()
        except AttributeError:
            pytest.skip("the SQLite of this Python cannot be watched")
    _calls.watch(watcher)


def forget(watcher: Watcher) -> None:
    """Stop showing it calls."""
    if _calls is not None:
        _calls.forget(watcher)
