"""Becomes a server that we supervise: gives up root, ties its life to the parent, executes.

Runs as a small program of its own (`python -I -S launcher.py`), not as code between fork and exec
of the server: that code would run in the copy of a process with many threads (gRPC's among them).

Root may not run PostgreSQL, and the program's or the data's folder may lie below a folder that only
root may enter (a clone in /root, a data folder of mode 0700). Opening those folders to everybody
is not ours to do, and copying 41 MB of programs elsewhere is slow and leaves waste. Instead the
unprivileged process keeps exactly one capability across the change of user: CAP_DAC_READ_SEARCH
(may enter and read, not write), or CAP_DAC_OVERRIDE where the program's own mode forbids others to
run it. SECBIT_NO_SETUID_FIXUP is needed as well, or access(2), by which PostgreSQL looks for its
own program, would ignore the capability.
"""

import argparse
import ctypes
import os
import signal
import struct
import sys

PR_SET_PDEATHSIG = 1
PR_SET_SECUREBITS = 28
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
SECBIT_NO_SETUID_FIXUP = 1 << 2
CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Exit code 127 when the server could not be executed, 0 when the parent is gone already."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--death-signal", type=int, default=signal.SIGINT)
    parser.add_argument("--uid", type=int)
    parser.add_argument("--gid", type=int)
    parser.add_argument("--capability", type=int)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    os.umask(0o077)
    try:
        if options.uid is not None:
            drop_root(options.uid, options.gid, options.capability)
        # Only now: the kernel forgets the signal whenever credentials change.
        _prctl(PR_SET_PDEATHSIG, options.death_signal)
        if os.getppid() != options.parent:
            sys.exit(0)
        os.execv(options.command[0], options.command)
    except OSError as error:
        sys.stderr.write(f"cannot start {options.command[0]}: {error}\n")
        sys.exit(127)


def drop_root(uid: int, gid: int, capability: int | None) -> None:
    """Become `uid`:`gid` for good, keeping no capability or exactly the one named."""
    if capability is not None:
        _prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if capability is not None:
        _set_capabilities(1 << capability)
        _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def _set_capabilities(mask: int) -> None:
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    sets = struct.pack("=6I", low, low, low, high, high, high)  # effective, permitted, inheritable
    if _libc.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset failed")


def _prctl(option: int, *arguments: int) -> None:
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    if _libc.prctl(option, *padded) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} failed")


if __name__ == "__main__":
    main()
