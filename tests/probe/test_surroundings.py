"""The watcher of a run's surroundings says which line was told what, and changes no answer."""

from __future__ import annotations

from pathlib import Path

from tests.support.tracing import trace_script, trained

SOURCE = """\
import datetime, locale, os, tempfile, time
from pathlib import Path
from repro_gate import record, step
told = {}
told["path"] = Path(__file__).resolve().parent.name + os.path.basename(os.getcwd())
told["home"] = os.path.expanduser("~").endswith(os.path.basename(str(Path.home())))
told["tmpdir"] = os.path.dirname(tempfile.mkdtemp()) == tempfile.gettempdir()
told["timezone"] = datetime.datetime.fromtimestamp(0).astimezone().year, time.localtime(0).tm_year, time.strftime("%Y", time.gmtime(0))
told["locale"] = len(locale.localeconv()), os.environ.get("LANG")
told["umask"] = os.stat(__file__).st_size, Path(__file__).stat().st_size, os.path.getsize(__file__)
told["environment"] = sorted(os.environ) == sorted(dict(os.environ)) == sorted(os.environ.copy())
for number in range(3):
    record("told", repr(sorted(told.items())).encode())
    step()
"""


def test_each_line_is_noted_with_what_it_was_told_and_every_answer_stays(tmp_path: Path) -> None:
    watch = {"watch": True, "surroundings": True}
    watched, plain = (
        trained(trace_script(tmp_path, SOURCE, name=name, factors=factors))
        for name, factors in (("watched", watch), ("plain", None))
    )
    told = [
        [item.digests for item in trace.blocks if item.kind != "rng"] for trace in (watched, plain)
    ]
    assert told[0] == told[1] != [] and not plain.uses
    asking = enumerate(SOURCE.splitlines(), 1)
    lines = {text.split('"')[1]: number for number, text in asking if text.startswith("told[")}
    assert lines.items() <= {(use.factor, use.line) for use in watched.uses}
    late = lines["environment"] + 2
    assert not [use for use in watched.uses if use.line >= late and use.factor in lines]
