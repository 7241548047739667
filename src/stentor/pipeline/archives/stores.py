"""What commits need of a file system: a file that appears whole, once, or not at all.

The log of an archive is a directory of numbered files. Two writers may want the same number at the
same time, and one must lose. So the one operation that everything rests on is `put_new`: make a
file with this content under this name, unless there is one; nobody ever sees a part of it.

    LocalStore    writes a temporary file and links it to its name, which fails if that is taken.
                  A rename would replace what is there.
    HadoopStore   the same through the JVM of the Spark driver: writes a temporary file and renames
                  it with `FileContext`, whose rename refuses to replace. HDFS does this in one
                  step; where a file system does not, one writer at a time is safe, which is what
                  Spark's own checkpoints ask for.
    ArrowStore    reads only, where there is no JVM: for replay, and inside of executors.

Hadoop is used for commits rather than `pyarrow.fs` because the latter's `move` replaces what is
there on several file systems, and so can't decide between two writers.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pyarrow import fs

from stentor.errors import ArchiveError
from stentor.pipeline.archives.places import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Temporary files; what a crash leaves behind is recognized by this, and tidied up some day.
TEMPORARY: Final = ".new-"


class Entry(NamedTuple):
    """A file: its name relative to the archive, and when it was last changed."""

    name: str
    modified: float


class Store(Protocol):
    """The small files of an archive, and the names of all."""

    place: Place

    def read(self, name: str) -> bytes | None:
        """The whole file; None if there is none."""

    def put_new(self, name: str, data: bytes) -> bool:
        """Make a file, whole and at once; False if there is one of that name."""

    def put(self, name: str, data: bytes) -> None:
        """Make a file or replace it; a reader sees the old or the new."""

    def entries(self, directory: str) -> list[Entry]:
        """All files in a directory and below; none if it does not exist."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; one that is not there is fine."""


def store_of(place: Place, spark: SparkSession | None = None) -> Store:
    """The store for a place."""
    if place.is_local:
        return LocalStore(place)
    if spark is not None and hasattr(spark, "_jvm"):
        return HadoopStore(place, spark)
    return ArrowStore(place)


class LocalStore:
    """A directory of this machine, or one that is mounted."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def read(self, name: str) -> bytes | None:
        try:
            with open(self.place.path(name), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def put_new(self, name: str, data: bytes) -> bool:
        target = self.place.path(name)
        temporary = self._written(target, data)
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        except OSError as error:
            raise ArchiveError(
                f"{self.place.root} cannot hold an archive: its file system has no hard links "
                f"({error.strerror}); choose a directory on another"
            ) from error
        finally:
            os.unlink(temporary)
        _sync_directory(target)
        return True

    def put(self, name: str, data: bytes) -> None:
        target = self.place.path(name)
        os.replace(self._written(target, data), target)
        _sync_directory(target)

    def _written(self, target: str, data: bytes) -> str:
        directory = os.path.dirname(target)
        temporary = f"{directory}/{TEMPORARY}{uuid.uuid4().hex}"
        try:
            os.makedirs(directory, exist_ok=True)
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ArchiveError(
                f"{target} cannot be written: {(error.strerror or str(error)).lower()}; nothing is "
                "changed. Make room, or see to the permissions, and try again"
            ) from error
        return temporary

    def entries(self, directory: str) -> list[Entry]:
        return list(self._walk(directory))

    def _walk(self, directory: str) -> Iterator[Entry]:
        try:
            found = list(os.scandir(self.place.path(directory)))
        except FileNotFoundError:
            return
        for entry in found:
            name = f"{directory}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(name)
            else:
                try:
                    yield Entry(name, entry.stat().st_mtime)
                except FileNotFoundError:
                    continue  # gone meanwhile

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                os.unlink(self.place.path(name))
            except FileNotFoundError:
                continue


def _sync_directory(file: str) -> None:
    """Let the name itself survive a loss of power."""
    descriptor = os.open(os.path.dirname(file), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class HadoopStore:
    """Any file system of Hadoop, through the driver's JVM."""

    def __init__(self, place: Place, spark: SparkSession) -> None:
        self.place = place
        self._hadoop: Any = spark._jvm.org.apache.hadoop  # type: ignore[union-attr]
        self._conf: Any = spark._jsc.hadoopConfiguration()
        root = self._path("")
        self._files: Any = root.getFileSystem(self._conf)
        self._context: Any = self._hadoop.fs.FileContext.getFileContext(root.toUri(), self._conf)

    def _path(self, name: str) -> Any:
        return self._hadoop.fs.Path(self.place.for_spark(name))

    def read(self, name: str) -> bytes | None:
        path = self._path(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def put_new(self, name: str, data: bytes) -> bool:
        target = self._path(name)
        if self._files.exists(target):
            return False
        temporary = self._written(name, data)
        try:
            self._rename(temporary, target, "NONE")
        except Exception:
            self._files.delete(temporary, False)
            if self._files.exists(target):
                return False
            raise
        return True

    def put(self, name: str, data: bytes) -> None:
        self._rename(self._written(name, data), self._path(name), "OVERWRITE")

    def _written(self, name: str, data: bytes) -> Any:
        directory = name.rpartition("/")[0]
        temporary = self._path(f"{directory}/{TEMPORARY}{uuid.uuid4().hex}")
        stream = self._files.create(temporary, False)
        try:
            stream.write(data)
        finally:
            stream.close()
        return temporary

    def _rename(self, source: Any, target: Any, how: str) -> None:
        option = getattr(self._hadoop.fs, "Options$Rename")
        gateway = self._gateway()
        options = gateway.new_array(option, 1)
        options[0] = getattr(option, how)
        self._context.rename(source, target, options)

    def _gateway(self) -> Any:
        from pyspark import SparkContext

        return SparkContext._gateway

    def entries(self, directory: str) -> list[Entry]:
        path = self._path(directory)
        if not self._files.exists(path):
            return []
        base = len(self._files.makeQualified(self._path("")).toString()) + 1
        found = []
        files = self._files.listFiles(path, True)
        while files.hasNext():
            status = files.next()
            name = status.getPath().toString()[base:]
            found.append(Entry(name, status.getModificationTime() / 1000))
        return found

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._files.delete(self._path(name), False)


class ArrowStore:
    """Any file system of Arrow, to read from."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def read(self, name: str) -> bytes | None:
        try:
            with self.place.open(name) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def put_new(self, name: str, data: bytes) -> bool:
        raise self._needs_spark()

    def put(self, name: str, data: bytes) -> None:
        raise self._needs_spark()

    def _needs_spark(self) -> ArchiveError:
        return ArchiveError(
            f"{self.place.root} can only be read without Spark; give a SparkSession, or a local "
            "path"
        )

    def entries(self, directory: str) -> list[Entry]:
        system, path = self.place.arrow()
        chosen = fs.FileSelector(f"{path}/{directory}", allow_not_found=True, recursive=True)
        return [
            Entry(info.path[len(path) + 1 :], info.mtime.timestamp() if info.mtime else time.time())
            for info in system.get_file_info(chosen)
            if info.type == fs.FileType.File
        ]

    def delete(self, names: Iterable[str]) -> None:
        raise self._needs_spark()
