"""The process between dhsched and its own server: it stops the server when dhsched is gone, however that ended.

    python -I -S guardian.py PARENT_PID PRIVATE_DIR DATA_DIR GRACE_S SERVER [ARGUMENT ...]

Nobody writes to the guardian's standard input, a pipe: when it ends, the parent is gone, by close or by kill -9. The
guardian leads its own session, so that Ctrl-C in a terminal does not stop the store under its users. If the guardian
itself is killed, Linux kills the server (PR_SET_PDEATHSIG): sound here, because that is tied to the thread that forked,
and this process has only one thread.

The guardian makes PRIVATE_DIR and removes it; nothing is left behind. DATA_DIR ("" for none) is locked by a file whose
descriptor the server inherits, so the directory stays locked as long as any server may write there. Standard output
tells the parent `pid N`, or `locked N`, or `exited STATUS` with the end of the log.

This file is run by its path and imports nothing of dhsched, so that it starts in a few milliseconds.
"""

import contextlib
import errno
import fcntl
import os
import select
import signal
import sys
import time

POLL_S = 1.0  # Between two checks whether the parent changed: a forked child of the parent may hold the pipe open.
LOCK_S = 3.0  # A data directory that another server still has after this long is refused.
LOG_TAIL_BYTES = 2000  # Only this much of the end of the log is sent.
PR_SET_PDEATHSIG = 1


def main(parent: int, private: str, data: str, grace_s: float, command: list[str]) -> int:
    stop_asked = _prepare_signals()
    os.umask(0o077)  # The server's files contain secrets: only its user may read them.
    try:
        os.mkdir(private, 0o700)
        holder = _lock(data) if data else None
        if holder is not None:
            return _tell(f"locked {holder}\n", 1)
        log = os.path.join(data or private, "server.log")
        server = _start(command, log)
        _tell(f"pid {server}\n", 0)
        status = _watch(server, parent, stop_asked)
        if status is not None:
            return _tell(f"exited {os.waitstatus_to_exitcode(status)}\n{_tail(log)}", 1)
        _stop(server, grace_s)
        return 0
    except OSError as error:
        return _tell(f"exited 1\n{error}\n", 1)
    finally:
        import shutil  # Imported late: it is slow to import, and nobody waits any more.

        shutil.rmtree(private, ignore_errors=True)


def _prepare_signals() -> int:
    """Return a descriptor on which SIGTERM and the server's end can be read; ignore Ctrl-C and hang-ups."""
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    for noticed in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(noticed, lambda *_: None)
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable)
    return readable


def _lock(data: str) -> str | None:
    """Lock the data directory; return None, or the pid of the guardian that has locked it. A server that is just
    stopping has LOCK_S to let go: a store that is restarted at once waits for its files."""
    lock = os.open(os.path.join(data, "lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    give_up = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            if time.monotonic() > give_up:
                return os.read(lock, 32).decode().strip() or "?"
            time.sleep(0.05)
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    os.set_inheritable(lock, True)
    return None


def _start(command: list[str], log: str) -> int:
    prctl = None
    if sys.platform == "linux":
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    guardian = os.getpid()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if server := os.fork():
        os.close(out)
        return server
    try:
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guardian:  # The guardian died before the server was tied to it.
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for each in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(each, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _watch(server: int, parent: int, stop_asked: int) -> int | None:
    """Wait until the parent is gone or asks to stop (None), or the server exits (its status)."""
    while os.getppid() == parent:
        readable, _, _ = select.select([0, stop_asked], [], [], POLL_S)
        ended, status = os.waitpid(server, os.WNOHANG)
        if ended:
            return status
        if 0 in readable or (stop_asked in readable and signal.SIGTERM in os.read(stop_asked, 64)):
            return None
    return None


def _stop(server: int, grace_s: float) -> None:
    if grace_s:
        os.kill(server, signal.SIGTERM)
    give_up = time.monotonic() + grace_s
    while time.monotonic() < give_up:
        if os.waitpid(server, os.WNOHANG)[0]:
            return
        time.sleep(0.005)
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)


def _tail(log: str) -> str:
    with open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - LOG_TAIL_BYTES))
        return file.read().decode(errors="replace")


def _tell(text: str, code: int) -> int:
    # A parent that is gone reads nothing; that is no failure.
    with contextlib.suppress(BrokenPipeError):
        os.write(1, text.encode())
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]), sys.argv[5:]))
