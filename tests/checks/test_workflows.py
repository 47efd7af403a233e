"""Which actions workflows use, and which of them are pinned."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro_gate.checks.workflows import MAX_BYTES, MAX_FILES, Use, read_workflows

SHA = "11bd71901bbe5b1630ceea73d27597364c9af683"
CI = f"""\
name: ci
on: [push]
env: {{uses: not-an-action@v1}}
jobs:
  test:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@{SHA}  # v4.2.2
      - name: set up
        uses: "actions/setup-python@v5"
        with: {{uses: neither@v1}}
      - run: |
          uses: text@v1
      - uses: ./tools/build
      - uses: docker://alpine:3.20
  call:
    uses: org/repo/.github/workflows/train.yml@main
"""
COMPOSITE = "runs:\n  using: composite\n  steps:\n    - uses: actions/cache@v4\n    - uses: ./.github/actions/inner\n"


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def loose(root: Path) -> list[str]:
    return [f"{use.path}:{use.line}: {use.action}" for use in read_workflows(root).uses if not use.pinned]


@pytest.mark.parametrize(
    ("action", "pinned"),
    [
        (f"actions/checkout@{SHA}", True),
        (f"actions/checkout/sub/folder@{SHA.upper()}", True),
        (f"org/repo/.github/workflows/train.yml@{SHA}{SHA[:24]}", True),
        ("./.github/actions/build", True),
        ("../sibling", True),
        (f"docker://ghcr.io/org/image@sha256:{SHA}{SHA[:24]}", True),
        ("actions/checkout@v4", False),
        ("actions/checkout@main", False),
        (f"actions/checkout@{SHA[:12]}", False),
        (f"actions/checkout@{SHA}0", False),
        (f"actions/checkout@{SHA} ", False),
        ("actions/checkout", False),
        ("docker://alpine:3.20", False),
        ("docker://alpine@sha256:abc", False),
        (f"docker://alpine@{SHA}", False),
        ("", False),
    ],
)
def test_only_a_whole_commit_or_digest_pins(action: str, pinned: bool) -> None:
    assert Use("ci.yml", 1, action).pinned is pinned


def test_steps_jobs_and_local_actions_are_read_with_their_lines(tmp_path: Path) -> None:
    write(
        tmp_path,
        _github__workflows__ci_yml=CI,
        _github__actions__build__action_yml=COMPOSITE,
        tools__build__action_yaml=COMPOSITE,
        action_yml="runs:\n  using: composite\n  steps:\n  - {uses: a/b@v1}\n",
    )
    found = read_workflows(tmp_path)
    assert found.files == (".github/workflows/ci.yml", "action.yml", ".github/actions/build/action.yml", "tools/build/action.yaml")
    assert found.problems == () and len(found.uses) == 10
    assert loose(tmp_path) == [
        ".github/workflows/ci.yml:10: actions/setup-python@v5",
        ".github/workflows/ci.yml:15: docker://alpine:3.20",
        ".github/workflows/ci.yml:17: org/repo/.github/workflows/train.yml@main",
        "action.yml:4: a/b@v1",
        ".github/actions/build/action.yml:4: actions/cache@v4",
        "tools/build/action.yaml:4: actions/cache@v4",
    ]


def test_images_of_jobs_and_services_are_read_and_expressions_left_alone(tmp_path: Path) -> None:
    digest = f"@sha256:{SHA}{SHA[:24]}"
    write(
        tmp_path,
        _github__workflows__ci_yml=f"""\
jobs:
  a: {{container: "python:3.12"}}
  b:
    container: {{image: python{digest}, options: --gpus all, env: {{image: no-image}}}}
    services:
      db: {{image: postgres:17}}
      cache: {{image: redis{digest}, ports: [6379]}}
      none: {{image: ""}}
      chosen: {{image: "${{{{ matrix.image }}}}"}}
    steps: [{{run: "true", with: {{image: no-image}}}}]
  c: {{container: "docker://python:3.11"}}
  d: {{container: ./python}}
""",
    )
    assert len(read_workflows(tmp_path).uses) == 6
    assert loose(tmp_path) == [
        ".github/workflows/ci.yml:2: python:3.12",
        ".github/workflows/ci.yml:6: postgres:17",
        ".github/workflows/ci.yml:11: docker://python:3.11",
        ".github/workflows/ci.yml:12: ./python",
    ]
    assert read_workflows(tmp_path).files == (".github/workflows/ci.yml",)


def test_an_anchor_is_read_where_it_stands(tmp_path: Path) -> None:
    write(
        tmp_path, _github__workflows__ci_yml="jobs:\n  a:\n    steps: &s\n      - uses: &c x/y@v1\n      - uses: *c\n  b:\n    steps: *s\n"
    )
    assert loose(tmp_path) == [".github/workflows/ci.yml:4: x/y@v1", ".github/workflows/ci.yml:5: x/y@v1"]


def test_a_broken_workflow_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    write(
        tmp_path, _github__workflows__a_yml="jobs:\n  a: [\n", _github__workflows__b_yml=CI, _github__workflows__c_yml="#" * (MAX_BYTES + 1)
    )
    (tmp_path / ".github/workflows/d.yml").write_bytes(b"\xff")
    (tmp_path / ".github/workflows/e.yml").symlink_to("/etc/hostname")
    found = read_workflows(tmp_path)
    assert len(found.uses) == 5
    assert [problem.partition(": ")[0] for problem in found.problems] == [
        ".github/workflows/a.yml:3",
        ".github/workflows/c.yml",
        ".github/workflows/d.yml",
        ".github/workflows/e.yml",
    ]
    assert "lies outside the checkout" in found.problems[-1]


def test_a_local_action_outside_the_checkout_or_gone_is_left_alone(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    write(tmp_path, other__action_yml=COMPOSITE)
    write(root, _github__workflows__ci_yml="jobs:\n  a:\n    steps:\n      - uses: ./../other\n      - uses: ./gone\n      - uses: ./\n")
    assert read_workflows(root).files == (".github/workflows/ci.yml",)


def test_the_number_of_files_has_a_limit(tmp_path: Path) -> None:
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    for number in range(MAX_FILES + 1):
        (folder / f"{number:04}.yml").write_text("name: x\n")
    found = read_workflows(tmp_path)
    left_out = f".github/workflows/{MAX_FILES:04}.yml"
    assert len(found.files) == MAX_FILES
    assert found.problems == (f"{left_out}: not read, there are more than {MAX_FILES} workflows and actions",)


def test_a_checkout_without_workflows_has_none(tmp_path: Path) -> None:
    assert read_workflows(tmp_path).files == ()
    (tmp_path / ".github").write_text("a file")
    assert read_workflows(tmp_path).files == ()
