"""Files of a pinned commit on the Hub, checked against the checksums that the Hub lists for that commit."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

PATTERNS_AT_ONCE = 400
"""File names in one download call."""


class HubError(RuntimeError):
    """The Hub has not what the config asks for, or a file came broken; the message says which and what to do."""


class HubSource:
    """A repository at a pinned commit; files are fetched into a folder on demand."""

    def __init__(self, hub_id: str, revision: str, kind: Literal["model", "dataset"], folder: Path) -> None:
        """List the commit's files.

        :param hub_id: owner/name.
        :param revision: 40 hexadecimal digits.
        :param folder: where files go; real files, no links into a cache, since links break in sandboxes.
        :raises HubError: the Hub cannot be reached or has no such commit.
        """
        from huggingface_hub import HfApi
        from huggingface_hub.hf_api import RepoFile

        self.hub_id, self.revision, self.kind, self.folder = hub_id, revision, kind, folder
        try:
            tree = HfApi().list_repo_tree(hub_id, recursive=True, revision=revision, repo_type=kind)
            self._files = {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}
        except Exception as error:  # the client raises many unrelated classes: HTTP, offline, validation
            raise HubError(f"{hub_id} at {revision}: {_first_line(error)}; check id, revision and network") from None

    def names(self) -> list[str]:
        """Paths of all files of the commit, with slashes."""
        return sorted(self._files)

    def fetch(self, names: list[str]) -> None:
        """Fetch files that are not there yet and check every one of them.

        :raises HubError: a download failed, or a file's checksum is not the Hub's.
        """
        from huggingface_hub import snapshot_download

        for start in range(0, len(names), PATTERNS_AT_ONCE):
            some = names[start : start + PATTERNS_AT_ONCE]
            try:
                snapshot_download(
                    self.hub_id,
                    revision=self.revision,
                    repo_type=self.kind,
                    local_dir=self.folder,
                    allow_patterns=[_literal(name) for name in some],
                )
            except Exception as error:  # see __init__
                raise HubError(f"{self.hub_id} at {self.revision}: {_first_line(error)}; try again") from None
            for name in some:
                self._check(name)

    def _check(self, name: str) -> None:
        entry = self._files[name]
        path = self.folder / name
        if not path.is_file():
            raise HubError(f"{self.hub_id} at {self.revision}: {name} did not arrive; try again")
        if entry.lfs is not None:
            sound = digest_of(path, "sha256") == entry.lfs.sha256
        else:
            sound = digest_of(path, "git") == entry.blob_id
        if not sound:
            raise HubError(f"{self.hub_id} at {self.revision}: {name} differs from the Hub's checksum; fetch it again")


def digest_of(path: Path, method: Literal["sha256", "git"]) -> str:
    """Checksum of a file: SHA-256, or git's (SHA-1 over a header with the size, and the bytes)."""
    if method == "sha256":
        state = hashlib.sha256()
    else:
        state = hashlib.sha1(b"blob %d\x00" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()


def _literal(name: str) -> str:
    """A name as a pattern that matches only itself."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
