"""The command ``python -m flows.golden_sweep``: a server of its own, progress, the tally, and an exit code."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from emmy import config
from emmy.errors import EmmyError, InputError
from flows.lock import sweep_lock
from flows.server import LocalServer, connected
from tasks.keys import results_of
from tasks.progress import Reporter, clock, console, stopping

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise InputError(message, hint=f"see {self.prog} --help")


def parser() -> argparse.ArgumentParser:
    """The options; each is a parameter of the flow."""
    options = _Parser(
        prog="python -m flows.golden_sweep", allow_abbrev=False,
        description="Tune the golden shapes, compare with the recorded goldens, propose a patch, write a report. "
        "Run again it goes on where it stopped.",
    )  # fmt: skip
    options.add_argument("--group", metavar="NAME", help="golden group (default: quick on a CPU, all others on a GPU)")
    options.add_argument("--kernel", metavar="SUBSTR", help="only shapes with SUBSTR in their name")
    options.add_argument("--patience", type=_whole, metavar="N", help="live attempts without a new best")
    options.add_argument("--reconfirm", type=_whole, metavar="N", default=2, help="times a win has to come out again")
    options.add_argument("--device", metavar="NAME", help="cuda or opencl (default: a CUDA GPU, else OpenCL)")
    options.add_argument("--clean", action="store_true", help="a new, cold sweep; goldens and older sweeps stay")
    options.add_argument("--apply", action="store_true", help="write the golden file without asking")
    options.add_argument("--rerun", metavar="SHAPE", help="forget the results of one shape and run its tasks again")
    options.add_argument("--plans-dir", metavar="DIR", help="folder of the report (default: plans/)")
    return options


def main(flow: Callable[..., dict[str, Any]], argv: Sequence[str] | None = None) -> int:
    """Runs the flow; 0, 1 (a row or shape failed, the rest is complete), 2 (nothing was started), 130."""
    started = time.monotonic()
    server: LocalServer | None = None
    try:
        options = parser().parse_args(argv)
        settings = config.load()
        folder = settings.work_dir
        with sweep_lock(folder):
            # Whoever holds it says so before a server is started; the flow takes it again.
            pass
        if not os.environ.get("PREFECT_API_URL"):
            os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
            server = LocalServer(folder)
            server.start()
        return _sweep(flow, options, folder, server, started)
    except KeyboardInterrupt:
        _say("interrupted: what was measured is kept, run it again to go on")
        return INTERRUPTED
    except EmmyError as error:
        if config.debug_requested():
            traceback.print_exc()
        _say(f"error: {error}")
        return error.exit_code
    except Exception as error:
        if config.debug_requested():
            traceback.print_exc()
        _say(f"error: {type(error).__name__}: {error}; EMMY_DEBUG=1 shows where; run it again to go on")
        return FAILED
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else BAD_INPUT
    finally:
        if server is not None:
            server.stop()


def _sweep(
    flow: Callable[..., dict[str, Any]],
    options: argparse.Namespace,
    folder: Path,
    server: LocalServer | None,
    started: float,
) -> int:
    from flows.plan import plan_of, warnings
    from flows.results import Incomplete

    # Checked here so that bad input stops before anything is started; the flow reads it again.
    plan = plan_of(
        options.group, options.kernel, options.patience, options.reconfirm, options.device, options.plans_dir
    )
    if options.rerun is not None and options.rerun not in plan.names:
        raise InputError("--rerun", found=options.rerun, expected=f"a shape of this sweep: {', '.join(plan.names)}")
    caps, settings = plan.work.caps, plan.work.settings
    reporter = Reporter(started=started)
    reporter.line(f"golden sweep on {caps.name}: {len(plan.names)} shapes, patience {settings.patience}")
    reporter.line(f"{plan.work.prior.name} prior: {plan.work.prior.about}")
    for text in warnings(plan):
        reporter.line(text)
    failed: Incomplete | None = None
    console.append(reporter)
    before = signal.signal(signal.SIGINT, _interrupt)
    try:
        with connected(server, folder):
            if options.rerun is not None:
                reporter.line(f"{forget(options.rerun)} results of {options.rerun} forgotten")
            try:
                result = flow(
                    options.group, options.kernel, options.patience, options.clean, options.reconfirm, options.device,
                    options.apply, options.plans_dir,
                )  # fmt: skip
            except Incomplete as incomplete:
                failed, result = incomplete, incomplete.result
    finally:
        signal.signal(signal.SIGINT, before)
        console.remove(reporter)
        stopping.clear()
    for text in closing(result, clock(time.monotonic() - reporter.started)):
        reporter.line(text)
    if failed is not None:
        _say(f"error: {len(result['failed'])} shapes failed; run it again to try those once more")
    return FAILED if failed is not None or result["rows_failed"] else 0


def closing(result: dict[str, Any], elapsed: str) -> list[str]:
    """The last lines: an outcome a shape, failures, tally, files."""
    lines = ["", *result["outcomes"]]
    lines += [f"! {name}: {reason}" for name, reason in result["failed"].items()]
    lines += [f"! {name}: a row of its A/B failed, see the report" for name in result["rows_failed"]]
    lines += ["", f"tally   {result['tally']}", f"report  {result['report']}", f"patch   {result['patch']}"]
    if result["changes"]:
        lines.append(f"        {result['changes']} changes; apply them with: emmy golden apply {result['proposal']}")
    return [*lines, f"done in {elapsed}, sweep {result['sweep']}"]


def forget(shape: str) -> int:
    """Deletes the results of every task of a shape, so that the next run executes them; returns how many there were."""
    from prefect.settings import PREFECT_LOCAL_STORAGE_PATH

    found = results_of(shape, Path(PREFECT_LOCAL_STORAGE_PATH.value()))
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """The first interrupt lets the current measurement end; the second ends the process, and its workers with it."""
    if stopping.is_set():
        os._exit(INTERRUPTED)
    stopping.set()
    _say("\nstopping after the current measurement; press Ctrl-C again to stop at once")
    raise KeyboardInterrupt


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"found {text}, expected a whole number") from None


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
