"""Where an archive lies, and its data files.

A place is a directory of any file system that both Spark and Arrow know. It is a plain value: the
driver, the executors and programs without Spark hold the same one, and open files in it by their
names relative to the archive. Local paths are opened directly; others through `pyarrow.fs` (HDFS,
S3, Google Cloud, Azure), because executors run Python and cannot reach Hadoop's own classes. For
commits, which need more than reading and writing, see `stentor.pipeline.archives.stores`.

A data file gets a name that nobody else uses, so whatever happens to its writer, it can only stay
behind unmentioned. A local one is on the disk, not just in memory, before a manifest names it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import fs

from stentor.errors import ArchiveError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
#: What Hadoop and Arrow call differently.
_FOR_ARROW: Final = {"s3a": "s3", "s3n": "s3", "abfss": "abfs"}


@dataclass(frozen=True)
class Place:
    """A directory: an absolute local path, or a URI."""

    root: str

    @property
    def is_local(self) -> bool:
        return self.root.startswith("/")

    def path(self, name: str = "") -> str:
        """Where a file of this relative name is."""
        return f"{self.root}/{name}" if name else self.root

    def for_spark(self, name: str) -> str:
        """The same as Spark reads it: a local path stays local, whatever the default is."""
        return f"file:{self.path(name)}" if self.is_local else self.path(name)

    def arrow(self) -> tuple[Any, str]:
        """Arrow's file system, and the directory in it."""
        if self.is_local:
            return fs.LocalFileSystem(), self.root
        scheme, _, rest = self.root.partition(":")
        uri = f"{_FOR_ARROW.get(scheme.lower(), scheme)}:{rest}"
        try:
            system, path = fs.FileSystem.from_uri(uri)
        except (pa.ArrowException, OSError) as error:
            raise ArchiveError(
                f"{self.root} cannot be opened: {error}; archives can be on local paths, HDFS, S3, "
                "Google Cloud Storage and Azure"
            ) from error
        return system, path.rstrip("/")

    def open(self, name: str) -> pa.NativeFile:
        """A file to read from; `FileNotFoundError` if there is none."""
        if self.is_local:
            return pa.OSFile(self.path(name))
        system, path = self.arrow()
        return system.open_input_file(f"{path}/{name}")

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        """A new file to write to; when this ends well, it is complete and stays."""
        if not self.is_local:
            system, path = self.arrow()
            target = f"{path}/{name}"
            system.create_dir(target.rpartition("/")[0])
            with system.open_output_stream(target) as stream:
                yield stream
            return
        target = self.path(name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        try:
            with open(target, "xb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
        except BaseException:
            os.unlink(target)
            raise

    def size(self, name: str) -> int | None:
        """Bytes of a file; None if there is none."""
        if self.is_local:
            try:
                return os.stat(self.path(name)).st_size
            except FileNotFoundError:
                return None
        system, path = self.arrow()
        found = system.get_file_info(f"{path}/{name}")
        return found.size if found.type == fs.FileType.File else None


def place_of(path: str | os.PathLike[str], spark: SparkSession | None = None) -> Place:
    """The place that a user's path means: on Spark's default file system, or the local one.

    >>> place_of("/data/archive/"), place_of("file:///data/archive"), place_of("s3a://b/archive")
    (Place(root='/data/archive'), Place(root='/data/archive'), Place(root='s3a://b/archive'))
    """
    if spark is not None:
        from stentor.pipeline.registration import require_own

        require_own(spark, "an archive")
    text = os.fspath(path)
    if not text.strip():
        raise ArchiveError(f"{text!r} is no path of an archive; give a directory")
    match = _SCHEME.fullmatch(text)
    if match is None and spark is not None:
        default = _default_file_system(spark)
        if not default.startswith("file:"):
            return Place(default.rstrip("/") + "/" + text.strip("/"))
    if match is None:
        return Place(os.path.abspath(text))
    if match[1].lower() == "file":
        return Place(os.path.abspath("/" + match[2].lstrip("/")))
    return Place(text.rstrip("/"))


def _default_file_system(spark: SparkSession) -> str:
    context = getattr(spark, "_jsc", None)
    if context is None:  # Spark Connect does not tell
        return "file:///"
    return str(context.hadoopConfiguration().get("fs.defaultFS", "file:///"))
