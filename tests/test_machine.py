"""What the gate reads of a machine, with an nvidia-smi that takes what the real one does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from repro_gate import machine
from repro_gate.machine import gpu_devices, gpu_processes, gpu_states, read_machine

MODES = ("mig.mode.current", "ecc.mode.current")
ERRORS = ("ecc.errors.corrected.volatile.total", "ecc.errors.uncorrected.volatile.total")
CLOCKS = ("clocks.max.sm", "clocks.max.memory")
FIELDS = ("driver_version", "name", "uuid", "memory.total", "compute_cap", *MODES)
FIELDS += (*ERRORS, *CLOCKS)
OF_TODAY = ("0", "0", "1980 MHz", "3201 MHz")
TWO = (
    ("570.86.15", "NVIDIA H200", "GPU-11", "143771 MiB", "9.0", "Disabled", "Enabled", *OF_TODAY),
    ("570.86.15", "NVIDIA H200", "GPU-22", "143771 MiB", "9.0", "Enabled", "Enabled", *OF_TODAY),
)
# What nvidia-smi does: one option for each query, CSV with ", ", status 2 and a sentence on stdout
# for a field it does not know.
SMI = r"""
import sys
known, rows, apps = {known!r}, {rows!r}, {apps!r}
if len(sys.argv) != 3 or sys.argv[2] != "--format=csv,noheader":
    sys.exit("ERROR: Option is not recognized. Please run 'nvidia-smi -h'.")
option, _, names = sys.argv[1].partition("=")
if option == "--query-gpu":
    for name in names.split(","):
        if name not in known:
            print('Field "%s" is not a valid field to query.' % name)
            sys.exit(2)
    for row in rows:
        print(", ".join(row[known.index(name)] for name in names.split(",")))
elif option == "--query-compute-apps" and names == "pid,process_name,used_memory":
    print("\n".join(apps))
else:
    sys.exit(2)
"""


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine that the tests run on: no driver, no nvidia-smi."""
    monkeypatch.setattr(machine, "_DRIVER", tmp_path / "no-driver")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def install(
    tmp_path: Path, known: tuple[str, ...] = FIELDS, rows: object = TWO, apps: tuple[str, ...] = ()
) -> None:
    (tmp_path / "smi.py").write_text(SMI.format(known=known, rows=rows, apps=apps))
    script(tmp_path, f'exec "{sys.executable}" "{tmp_path / "smi.py"}" "$@"')


def script(tmp_path: Path, body: str) -> None:
    path = tmp_path / "bin/nvidia-smi"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def of_gpus() -> dict[str, str]:
    return {name: value for name, value in read_machine().items() if name.startswith("gpu.")}


def test_without_a_gpu_or_a_sound_nvidia_smi_the_rest_is_read(tmp_path: Path) -> None:
    facts = read_machine()
    assert facts["cpu-count"] == str(os.cpu_count()) and facts["os"]
    assert facts["memory-bytes"] == str(psutil.virtual_memory().total)
    assert facts["kernel"].endswith(os.uname().release)
    assert not of_gpus() and "driver" not in facts and gpu_processes() is None
    others = ("nvidiactl", "nvidia-uvm", "nvidia-caps", "null", "xnvidia2")
    for name in ("nvidia1", "nvidia0", "kfd", *others):
        (tmp_path / name).touch()
    assert gpu_devices(tmp_path) == ("kfd", "nvidia0", "nvidia1")
    assert gpu_devices(tmp_path / "none") == ()
    for body in (
        "echo 'No devices were found'; exit 6",
        "exit 0",
        "head -c 3000000 /dev/zero",
        "printf '\\377\\376, \\n, , , , , , \\n'",
    ):
        script(tmp_path, f"PATH=/bin:/usr/bin; {body}")
        assert not of_gpus() and not gpu_processes()


def test_every_gpu_is_read_and_what_it_does_not_have_is_absent(tmp_path: Path) -> None:
    install(tmp_path)
    names = ("model", "uuid", "memory", "capability", "mig", "ecc")
    names += ("ecc-corrected", "ecc-uncorrected", "clock-sm", "clock-memory")
    rows = {
        f"gpu.{number}.{name}": value
        for number, row in enumerate(TWO)
        for name, value in zip(names, row[1:], strict=True)
    }
    assert read_machine()["driver"] == "570.86.15" and of_gpus() == rows
    lacks = ("[N/A]", "[Not Supported]", *["N/A"] * 5)
    install(tmp_path, rows=(("470.1", "Tesla T4", "GPU-1", "15360 MiB", *lacks),))
    assert [*of_gpus()] == ["gpu.0.model", "gpu.0.uuid", "gpu.0.memory"]
    install(tmp_path, (*FIELDS[:4], *FIELDS[5:]), tuple((*row[:4], *row[5:]) for row in TWO))
    known = ("model", "uuid", "memory")
    of_each = {f"gpu.{number}.{name}" for number in (0, 1) for name in known}
    assert of_gpus() == {name: text for name, text in rows.items() if name in of_each}


def test_a_hanging_nvidia_smi_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, "")
    (tmp_path / "bin/nvidia-smi").write_bytes(b"\x7fELF not really")
    assert "driver" not in read_machine() and gpu_processes() is None
    started = tmp_path / "started"
    started.touch()
    script(tmp_path, f'echo $$ >>"{started}"; exec /bin/sleep 600')
    for seconds in (0.2, 2.0, 20.0):  # until it was given the time to say who it is
        monkeypatch.setattr(machine, "SMI_SECONDS", seconds)
        assert "driver" not in read_machine() and gpu_processes() is None
        if pids := started.read_text().split():
            break
    assert pids and not any(psutil.pid_exists(int(pid)) for pid in pids)


def test_the_driver_is_the_loaded_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, version in (
        ("x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023", "535.104.05"),
        ("Open Kernel Module for x86_64  570.86.15  Release Build  (dvs@U16-I3)", "570.86.15"),
    ):
        monkeypatch.setattr(machine, "_DRIVER", tmp_path / "no-driver")
        install(tmp_path, rows=(("1.2.3", *TWO[0][1:]),))
        assert read_machine()["driver"] == "1.2.3"
        loaded = f"NVRM version: NVIDIA UNIX {module}\nGCC version:  gcc version 12.3.0 (Ubuntu)\n"
        (tmp_path / "version").write_text(loaded)
        monkeypatch.setattr(machine, "_DRIVER", tmp_path / "version")
        assert read_machine()["driver"] == version
    monkeypatch.setattr(machine, "_DRIVER", tmp_path / "no-driver")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    script(tmp_path, 'printf "%s, x, x, x, x, x, x, x, x, x, x\\n" "$LC_ALL"')
    assert read_machine()["driver"] == "C"


CORE = """processor\t: 0
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: {}
CPU revision\t: 1

"""
ARM_MODEL = "implementer 0x41, architecture 8, variant 0x3, part {}, revision 1"
INTEL = "processor\t: 0\nmodel name\t: Intel(R)  Xeon(R) CPU @ 2.20GHz\nflags\t: fpu\n\n"


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no /proc")
@pytest.mark.parametrize(
    ("text", "model"),
    [
        (INTEL * 2, "Intel(R) Xeon(R) CPU @ 2.20GHz"),
        (CORE.format("0xd0c") * 2, ARM_MODEL.format("0xd0c")),
        (
            CORE.format("0xd05") + CORE.format("0xd0b"),
            f"{ARM_MODEL.format('0xd05')} + {ARM_MODEL.format('0xd0b')}",
        ),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"),
    ],
    ids=["Intel", "ARM", "two kinds of core", "POWER"],
)
def test_the_cpu_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, model: str
) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "cpuinfo")
    assert read_machine()["cpu-model"] == model


def test_processes_on_the_gpus_are_listed(tmp_path: Path) -> None:
    install(tmp_path)
    assert gpu_processes() == ()  # none of them is not unknown
    apps = (
        "2999999, /opt/a, b/python, 1024 MiB",
        "2999998, [Not Found], [N/A]",
        "no number, python, 1 MiB",
        "",
    )
    install(tmp_path, apps=apps)
    assert gpu_processes() == ("2999998 [Not Found]", "2999999 /opt/a, b/python (1024 MiB)")


STATES = ("uuid", "clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")
NEWER, OLDER = "clocks_event_reasons.active", "clocks_throttle_reasons.active"
BUSY = ("GPU-11", "1755 MHz", "2619 MHz", "83", "689.53 W", "0x0000000000000044")
FREE = ("GPU-22", "345 MHz", "[N/A]", "-", "[Unknown Error]", "0x0000000000000001")


def test_the_state_of_each_gpu_is_read_by_one_process(tmp_path: Path) -> None:
    busy = {"gpu": "GPU-11", "sm_mhz": 1755.0, "memory_mhz": 2619.0, "celsius": 83.0}
    busy |= {"watts": 689.53, "slowed": ("power cap", "hardware thermal slowdown")}
    free = {"gpu": "GPU-22", "sm_mhz": 345.0, "memory_mhz": None, "celsius": None, "watts": None}
    free |= {"slowed": ("idle",)}
    for reasons, processes in ((NEWER, 1), (OLDER, 2)):  # an older driver knows the older name
        install(tmp_path, (*STATES, reasons), (BUSY, FREE))
        path, calls = tmp_path / "bin/nvidia-smi", tmp_path / f"{processes}"
        path.write_text(path.read_text().replace("exec", f'echo >>"{calls}"; exec'))
        assert gpu_states() == [busy, free]
        assert calls.read_text() == processes * "\n"


@pytest.mark.parametrize(
    "row",
    [
        ("<b>GPU</b>", *BUSY[1:]),
        ("GPU-" + "1" * 65, *BUSY[1:]),
        (*BUSY, "1"),
        BUSY[1:],
    ],
    ids=["no UUID", "a long one", "too many", "too few"],
)
def test_a_gpu_whose_state_makes_no_sense_is_left_out(tmp_path: Path, row: tuple[str]) -> None:
    text = ", ".join(row).replace("<", "\\074")
    script(tmp_path, f"printf '{text}\\n{', '.join(FREE)}\\n'")
    assert [state["gpu"] for state in gpu_states()] == ["GPU-22"]


def test_what_is_no_number_is_unknown_and_without_an_answer_there_is_no_state(
    tmp_path: Path,
) -> None:
    assert gpu_states() == []
    for odd in ("1e400", "nan", "-5", "9999999", "1755 MHz; rm", "\u0663\u0664", "0x1g", "1 GHz"):
        script(tmp_path, f"echo 'GPU-1, {odd}, {odd}, {odd}, {odd}, {odd}'")
        [state] = gpu_states()
        assert state.pop("gpu") == "GPU-1" and state.pop("slowed") == ("unknown",)
        assert set(state.values()) == {None}, odd
    for body in ("echo 'No devices were found'; exit 6", "exit 0", "head -c 3000000 /dev/zero"):
        script(tmp_path, f"PATH=/bin:/usr/bin; {body}")
        assert gpu_states() == []
