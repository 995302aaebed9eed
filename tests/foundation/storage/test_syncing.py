"""`syncfs` replaces `fsync` before a recovery only where it is known to promise the same."""

from pathlib import Path

import pytest

from foundation.postgres.syncing import file_system_of, mounts, sync_method

MOUNTS = [
    r"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw",
    r"30 22 0:27 / /data rw master:1 - fuse.sshfs far:/ rw",
    r"31 22 0:28 /volume /data/fast\040disk rw - xfs /dev/vdb rw",
    r"32 22 0:29 / /mnt rw - xfs /dev/vdc rw",
    r"33 22 0:30 / /mnt rw - nfs4 far:/export rw",
]


@pytest.mark.parametrize("file_system", ["btrfs", "ext4", "xfs"])
@pytest.mark.parametrize("release", ["5.8.0", "6.18.44-generic", "10.0"])
def test_a_kernel_that_reports_errors_of_syncfs_is_asked_once(
    release: str, file_system: str
) -> None:
    assert sync_method(release, file_system) == "syncfs"


@pytest.mark.parametrize("release", ["5.7.19", "4.4.0", "4.19.0-26-amd64", "unknown", ""])
def test_an_older_or_unknown_kernel_syncs_every_file(release: str) -> None:
    assert sync_method(release, "ext4") == "fsync"


@pytest.mark.parametrize("file_system", ["nfs4", "fuse.sshfs", "overlay", "tmpfs", "9p", ""])
def test_other_file_systems_sync_every_file(file_system: str) -> None:
    assert sync_method("6.18.44", file_system) == "fsync"


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/home/me/.counterfoil", "ext4"),
        ("/data/counterfoil", "fuse.sshfs"),
        ("/data/fast disk/counterfoil", "xfs"),
        ("/datas", "ext4"),
        ("/mnt/here", "nfs4"),
    ],
)
def test_the_innermost_and_latest_mount_holds_a_folder(folder: str, expected: str) -> None:
    assert file_system_of(Path(folder), MOUNTS) == expected


def test_without_mounts_nothing_is_known() -> None:
    assert file_system_of(Path("/data"), []) == ""


def test_this_machine_says_what_it_mounted() -> None:
    assert file_system_of(Path("/proc").resolve(), mounts()) == "proc"
