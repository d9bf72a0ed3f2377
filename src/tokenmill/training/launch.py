"""Training in this process, or in several processes of this machine, which PyTorch starts and ends.

`runtime.processes` says how many. Each of them runs this program's command again, as torchrun would
run it, and finds the others by RANK, WORLD_SIZE, ... in its environment. This process only waits
for them and passes signals on.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from types import FrameType
from typing import NoReturn

import torch
import torch.distributed as dist

from tokenmill.core.errors import UserError
from tokenmill.display import note
from tokenmill.executors.threads import own_cores
from tokenmill.model.device import choose_device
from tokenmill.process import end_with_parent
from tokenmill.temporary import temporary_folder
from tokenmill.training.params import RuntimeParams

SHUTDOWN_SECONDS = 600
"""Seconds for the processes to end by themselves after a signal. They need them for a step, a
checkpoint and its copy to the mirror. Then they are killed."""

LOOK_EVERY = 0.1
"""Seconds between two looks at whether the processes have ended."""

ENOUGH_FLOPS = 1e12
"""Operations of a step that keep one GPU busy, about as many as it computes while the step's some
hundred kernels are launched. With fewer operations for each, more GPUs are no faster. The number is
assumed from data sheets, not measured."""


def launch_processes(runtime: RuntimeParams, *, step_flops: float) -> bool:
    """Run this program's command in `runtime.processes` processes, if that is more than one.

    A process that torchrun or this function started (RANK is set) is already one of several.

    Args:
        step_flops: floating-point operations of a step, of which each process gets at least
            ENOUGH_FLOPS if their number is `auto`.

    Returns:
        Whether the processes did the work, to the end; otherwise this process has to do it.

    Raises:
        UserError: there are fewer devices than processes, or one of the processes was killed.
        SystemExit: one of the processes failed, and has said why.
    """
    if "RANK" in os.environ:
        end_with_parent()
        return False
    count = process_count(runtime, step_flops)
    if count > 1:
        _launch(count)
    return count > 1


def process_count(runtime: RuntimeParams, step_flops: float) -> int:
    """The number of processes that the parameters ask for: at most one for each device, or for each
    core on a CPU."""
    device = choose_device(runtime.device).type
    most = {"cuda": torch.cuda.device_count(), "mps": 1}.get(device, own_cores())
    if runtime.processes == "auto":
        if device == "cpu":
            return 1
        if runtime.parallel == "fsdp":  # which is for what one device does not hold
            return most
        count = int(min(most, max(1, step_flops / ENOUGH_FLOPS)))
        if count < most:
            note(
                f"training on {count} of {most} GPUs: more are no faster at so small a step "
                "(runtime.processes)"
            )
        return count
    if runtime.processes > most:
        unit = "core" if device == "cpu" else "device"
        raise UserError(
            f"runtime.processes ({runtime.processes}) needs a {unit} for each, and there are "
            f"{most} ({device}) here; set it to auto."
        )
    return runtime.processes


def _launch(count: int) -> None:
    from torch.distributed.elastic.multiprocessing import (  # noqa: PLC0415 (a tenth of a second)
        DefaultLogsSpecs,
        SignalException,
        SubprocessContext,
    )

    # PyTorch's own log is off: the processes say themselves what went wrong
    logging.disable()
    share_cores(count)
    store = _local_store()
    os.environ |= {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # no process opens a store of its own
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": ",".join(number.name for number in stop_signals()),
    }
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")  # as under torchrun
    with temporary_folder() as logs:
        processes = SubprocessContext(
            "training",
            sys.executable,
            args=dict.fromkeys(range(count), tuple(sys.orig_argv[1:])),
            envs={rank: {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)},
            logs_specs=DefaultLogsSpecs(log_dir=str(logs)),
        )
        try:
            processes.start()
            result = processes.wait(period=LOOK_EVERY)
        except SignalException as stopped:
            _kill_at_second_interrupt([one.proc for one in processes.subprocess_handlers.values()])
            processes.close(stopped.sigval, SHUTDOWN_SECONDS)
            sys.exit(1)
    if result and result.failures:
        exit_like([failure.exitcode for failure in result.failures.values()])


def _kill_at_second_interrupt(processes: list[subprocess.Popen[bytes]]) -> None:
    """Let Ctrl-C end `processes` at once from now on, also if they wait for each other in vain, and
    then this one. The other signals do nothing more; `Interrupt` says why."""

    def kill(_: int, __: FrameType | None) -> None:
        for process in processes:
            process.kill()
        raise KeyboardInterrupt

    for number in stop_signals():
        signal.signal(number, kill if number == signal.SIGINT else signal.SIG_IGN)


def share_cores(count: int) -> None:
    """Give each of `count` processes its part of the cores, for computing and for compiling, unless
    the environment says otherwise."""
    cores = str(max(1, own_cores() // count))
    for variable in ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"):
        os.environ.setdefault(variable, cores)


def _local_store() -> dist.TCPStore:  # pyright: ignore[reportPrivateImportUsage]
    """The store where the processes find each other, which listens on 127.0.0.1 only.

    A TCPStore listens on all interfaces unless it is given a socket.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    return dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
        "127.0.0.1",
        port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def exit_like(codes: list[int]) -> NoReturn:
    """Exit with the code of the failed processes, or report the signal that killed one, because it
    could not report that itself.

    SIGTERM beside another code is what PyTorch sends to those that are left.
    """
    signals = {-code for code in codes if code < 0}
    if len(set(codes)) > 1:
        signals.discard(signal.SIGTERM)
    killed = min(signals, default=None)
    if killed:
        raise UserError(
            f"a process of this training was killed by {signal.Signals(killed).name}; `dvc repro` "
            "continues from the last checkpoint."
        )
    sys.exit(next((code for code in codes if code > 0), 1))


def stop_signals() -> list[signal.Signals]:
    """The signals after which training saves and ends: those of Ctrl-C, of systems that end a job,
    and of a terminal that is closed, which `nohup` lets a process ignore and Windows does not
    have."""
    hangup = getattr(signal, "SIGHUP", None)
    heard = [] if hangup is None or signal.getsignal(hangup) == signal.SIG_IGN else [hangup]
    return [signal.SIGINT, signal.SIGTERM, *heard]


class Interrupt:
    """While active, remembers the first signal to stop; a second Ctrl-C stops at once.

    Other signals do not stop at once, also while the process ends. Systems that end a job send
    SIGTERM to each of its processes, and a process that has lost DVC, as when its terminal was
    closed, gets one more.
    """

    def __init__(self, *, max_minutes: float | None):
        """Also ask to stop when `max_minutes` have passed from now; None sets no limit."""
        self._max_minutes = max_minutes
        self._began = time.monotonic()
        self._signal: int | None = None
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "Interrupt":
        for number in stop_signals():
            self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            if self._signal is None or number == signal.SIGINT:
                signal.signal(number, handler)  # type: ignore[arg-type]

    def _remember(self, number: int, _: FrameType | None) -> None:
        if self._signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._signal = self._signal or number

    @property
    def reason(self) -> str | None:
        """Why to stop, or None."""
        if self._signal is not None:
            return f"stopped by {signal.Signals(self._signal).name}"
        if (
            self._max_minutes is not None
            and time.monotonic() - self._began >= 60 * self._max_minutes
        ):
            return f"stopped by runtime.max_minutes ({self._max_minutes:g})"
        return None
