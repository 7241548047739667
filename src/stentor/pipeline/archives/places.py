"""Where an archive lies, and its files.

A place is a directory: a local one, or one of an object store. It is a plain value: the driver, the
executors and programs without Spark hold the same one, and open files in it by their names relative
to the archive. Local files are opened directly; all others by the object stores of `deltalake`,
which also commits there. So there is one chain of credentials: the `storage_options` that are
given, or else the environment.

A data file gets a name that nobody else uses, so whatever happens to its writer, it can only stay
behind unmentioned. A local one is on the disk, not just in memory, before a commit names it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import fs

from stentor.errors import ArchiveError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What is written to an object store at a time; its streams take bytes, and no buffers of Arrow's.
_BUFFER: Final = 4 * 2**20
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)


@dataclass(frozen=True)
class Place:
    """A directory: an absolute local path, or a URI; and what opens it, as names and values."""

    root: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def is_local(self) -> bool:
        return self.root.startswith("/")

    @property
    def storage_options(self) -> dict[str, str] | None:
        """The options as `deltalake` takes them."""
        return dict(self.options) or None

    def path(self, name: str = "") -> str:
        """Where a file of this relative name is."""
        return f"{self.root}/{name}" if name else self.root

    def below(self, name: str) -> Place:
        """A directory in this one."""
        return Place(self.path(name), self.options)

    def for_spark(self, name: str) -> str:
        """The same as Spark reads it: a local path stays local, whatever the default is."""
        return f"file:{self.path(name)}" if self.is_local else self.path(name)

    def files(self) -> Any:
        """The directory as a file system of Arrow."""
        if self.is_local:
            return fs.SubTreeFileSystem(self.root, fs.LocalFileSystem())
        from deltalake.exceptions import DeltaError
        from deltalake.fs import DeltaStorageHandler

        try:
            return fs.PyFileSystem(DeltaStorageHandler(self.root, self.storage_options))
        except (DeltaError, OSError, ValueError) as error:
            raise unreachable(self, error) from error

    def open(self, name: str) -> pa.NativeFile:
        """A file to read from; `FileNotFoundError` if there is none."""
        if self.is_local:
            return pa.OSFile(self.path(name))
        return self.files().open_input_file(name)

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        """A new file to write to; when this ends well, it is complete and stays."""
        if not self.is_local:
            with self.files().open_output_stream(name, buffer_size=_BUFFER) as stream:
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

    def read(self, name: str) -> bytes | None:
        """A small file; None if there is none."""
        try:
            with self.open(name) as file:
                return bytes(file.read())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, data: bytes) -> None:
        """Make a small file or replace it; a reader sees the old or the new."""
        try:
            if not self.is_local:
                with self.create(name) as stream:
                    stream.write(data)
                return
            hidden = os.path.join(os.path.dirname(name), f".{os.path.basename(name)}.{os.getpid()}")
            self.delete([hidden])
            with self.create(hidden) as stream:
                stream.write(data)
            os.replace(self.path(hidden), self.path(name))
        except OSError as error:
            raise ArchiveError(
                f"{self.path(name)} cannot be written: {(error.strerror or str(error)).lower()}; "
                "make room, or see to the permissions, and try again"
            ) from error

    def names(self, directory: str) -> list[str]:
        """The files in a directory and below; none if it does not exist."""
        if self.is_local and not os.path.isdir(self.path(directory)):
            return []
        chosen = fs.FileSelector(directory, allow_not_found=True, recursive=True)
        found = self.files().get_file_info(chosen)
        return sorted(info.path for info in found if info.type == fs.FileType.File)

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; one that is not there is fine."""
        files = self.files()
        for name in names:
            if files.get_file_info(name).type == fs.FileType.File:
                files.delete_file(name)

    def size(self, name: str) -> int | None:
        """Bytes of a file; None if there is none."""
        found = self.files().get_file_info(name)
        return found.size if found.type == fs.FileType.File else None


def in_words(error: Exception) -> str:
    """What an error of the store says, which may be a chain of causes in colors, as one line.

    >>> in_words(OSError("no such\\n  \\x1b[31m↳\\x1b[0m bucket"))
    'no such: bucket'
    """
    return re.sub(r"\s*\n[\s↳]*", ": ", re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip(" .\n"))


def unreachable(place: Place, error: Exception) -> ArchiveError:
    """What to say if a store does not open a place."""
    hint = "see to the path and the permissions"
    if not place.is_local:
        hint = (
            "archives can be on local paths, HDFS, S3, Google Cloud Storage and Azure, and "
            "storage_options say how to get there"
        )
    return ArchiveError(f"{place.root} cannot be opened: {in_words(error)}; {hint}")


def place_of(
    path: str | os.PathLike[str],
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Place:
    """The place that a user's path means: on Spark's default file system, or the local one.

    >>> place_of("/data/archive/"), place_of("file:///data/archive").root
    (Place(root='/data/archive', options=()), '/data/archive')
    >>> place_of("s3a://b/archive", storage_options={"AWS_REGION": "eu-central-1"}).options
    (('AWS_REGION', 'eu-central-1'),)
    """
    if spark is not None:
        from stentor.pipeline.registration import require_own

        require_own(spark, "an archive")
    options = tuple(sorted((storage_options or {}).items()))
    text = os.fspath(path)
    if not text.strip():
        raise ArchiveError(f"{text!r} is not a path of an archive; give a directory")
    match = _SCHEME.fullmatch(text)
    if match is None and spark is not None:
        default = _default_file_system(spark)
        if not default.startswith("file:"):
            return Place(default.rstrip("/") + "/" + text.strip("/"), options)
    if match is None:
        return Place(os.path.abspath(text), options)
    if match[1].lower() == "file":
        return Place(os.path.abspath("/" + match[2].lstrip("/")), options)
    return Place(text.rstrip("/"), options)


def _default_file_system(spark: SparkSession) -> str:
    context = getattr(spark, "_jsc", None)
    if context is None:  # Spark Connect does not tell
        return "file:///"
    return str(context.hadoopConfiguration().get("fs.defaultFS", "file:///"))
