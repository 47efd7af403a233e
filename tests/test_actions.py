"""The action files: inputs and outputs of the two that gate are the same, names and defaults are
the code's, a page tells of all."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from repro_gate.github.comment import Posted
from repro_gate.github.publish_phase import outputs_of
from repro_gate.github.settings import Inputs, read_inputs
from tests.support.composite import ACTIONS, ROOT, load, steps
from tests.support.reports import PASS
from tests.support.shell import script, shellcheck

# inputs of the action that are its script's, and never the gate's
OF_THE_CONTAINERS = ["image", "python", "volumes", "gpus", "network", "shm_size"]
OF_THE_COMMENT = {"token", "comment", "pull_request", "comment_url"}  # what `native` does not have
PUBLISHING = {"container": "publish", "native": "gate", "comment": "comment"}  # the step that does
PAGE = (ROOT / "docs/action.md").read_text(encoding="utf-8")
DIGEST = "ghcr.io/org/gate@sha256:" + "0123456789abcdef" * 4


def table(name: str) -> list[str]:
    """The rows of one of the page's marked tables."""
    return PAGE.split(f"<!-- {name} -->\n")[1].split(f"<!-- /{name} -->")[0].splitlines()[2:]


def row(name: str, item: dict[str, str]) -> str:
    default = item["default"]
    return f"| `{name}` | {f'`{default}`' if default else ''} | {item['description']} |"


def test_inputs_and_outputs_are_those_of_the_code_and_the_same_in_native() -> None:
    fields = {name.removeprefix("INPUT_").lower() for name in Inputs.__struct_encode_fields__}
    action, native = load("container"), load("native")
    assert list(action["inputs"])[-len(OF_THE_CONTAINERS) :] == OF_THE_CONTAINERS
    own = {name: action["inputs"][name] for name in action["inputs"].keys() - OF_THE_CONTAINERS}
    defaults = {name: item["default"] for name, item in own.items()}
    assert set(defaults) == fields and defaults.pop("token") == "${{ github.token }}"
    for name, value in defaults.items():
        assert read_inputs({f"INPUT_{name.upper()}": value}) == Inputs(), name
    assert list(action["outputs"]) == list(outputs_of(PASS, Inputs(), Posted("skipped")))
    kept = {name: item for name, item in own.items() if name not in OF_THE_COMMENT}
    python = native["inputs"].pop("python")
    assert native["inputs"] == kept and "runs the gate itself" in python["description"]
    said = {key: item["description"] for key, item in action["outputs"].items()}
    said.pop("comment_url")
    assert {key: item["description"] for key, item in native["outputs"].items()} == said


@pytest.mark.parametrize("name", ACTIONS)
def test_every_input_may_be_left_out_and_outputs_are_of_one_step(name: str) -> None:
    for item in load(name)["inputs"].values():
        assert (
            isinstance(item["default"], str) and item["required"] is False and item["description"]
        )
    for key, item in load(name)["outputs"].items() if name in PUBLISHING else ():
        assert item["value"] == f"${{{{ steps.{PUBLISHING[name]}.outputs.{key} }}}}"


def test_the_page_tells_of_every_input_and_output_as_the_file_does_and_shows_no_other() -> None:
    container = load("container")
    assert table("inputs") == [row(key, item) for key, item in container["inputs"].items()]
    for name, keys in {"native": ["python"], "comment": load("comment")["inputs"]}.items():
        assert table(name) == [row(key, load(name)["inputs"][key]) for key in keys]
    assert table("outputs") == [
        f"| `{key}` | {item['description']} |" for key, item in container["outputs"].items()
    ]
    known = {key for name in ACTIONS for key in load(name)["inputs"]}
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    shown = [step for block in blocks for step in steps_in(yaml.safe_load(block))]
    ours = [step for step in shown if step["uses"].startswith("repro-gate/")]
    assert ours and {key for step in ours for key in step.get("with", {})} <= known


def steps_in(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, dict) and "uses" in node:
        return [node]
    below = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [step for item in below for step in steps_in(item)]


def environment_of(action: str, step: str) -> set[str]:
    return set(steps(action)[step]["env"])


def inputs_of(action: str) -> set[str]:
    return {f"INPUT_{key.upper()}" for key in load(action)["inputs"]}


def test_only_the_step_that_publishes_is_given_the_token() -> None:
    in_order = steps("container")
    token = re.compile(r"inputs\.token\b")
    assert [key for key, step in in_order.items() if token.search(str(step.get("env")))] == [
        "publish"
    ]
    images = {"GATE_IMAGE", "CPU_IMAGE", "CUDA_IMAGE"}
    given = environment_of("container", "gate")
    assert inputs_of("container") - given == {"INPUT_TOKEN"}
    assert given - inputs_of("container") == images
    assert list(in_order) == ["gate", "page", "publish", "#3"]
    assert "always()" in in_order["#3"]["if"] and in_order["page"]["continue-on-error"] is True
    assert in_order["page"]["with"]["archive"] is False
    expressions = set(re.findall(r"\$\{\{(.*?)\}\}", ACTIONS["native"].read_text()))
    allowed = re.compile(r" (inputs|steps\.gate\.outputs)\.(?!token)\w+ ")
    assert expressions and all(allowed.fullmatch(item) for item in expressions)
    assert list(steps("native")) == ["gate"]
    assert environment_of("native", "gate") == inputs_of("native") | {"INPUT_COMMENT"}
    inputs, container = load("comment")["inputs"], load("container")["inputs"]
    assert inputs_of("comment") == environment_of("comment", "comment")
    assert set(inputs) == {"comment", "pull_request", "report", "token", "python"}
    assert all(inputs[key] == container[key] for key in ("comment", "pull_request"))


@pytest.mark.parametrize("name", PUBLISHING)
def test_the_scripts_are_clean_and_no_expression_stands_in_them(name: str, tmp_path: Path) -> None:
    scripts = {key: step["run"] for key, step in steps(name).items() if "run" in step}
    assert not [text for text in scripts.values() if "${{" in text]
    shellcheck({**scripts, "setup": (ROOT / "native/setup").read_text()}, tmp_path)


def test_a_branch_builds_its_images_and_pinning_changes_these_lines_alone(tmp_path: Path) -> None:
    before = ACTIONS["container"].read_text(encoding="utf-8")
    names = script("pin_image").NAMES
    if any(f"{name}: ''" not in before for name in names):
        pytest.skip("this is a release: its images have been pinned already")
    shutil.copy(ACTIONS["container"], tmp_path)
    for image in ("ghcr.io/org/gate:v1", "ghcr.io/org/gate@sha256:abc", f"{DIGEST}'\n  x: '"):
        with pytest.raises(ValueError, match="not an image by digest"):
            script("pin_image").pin(tmp_path, [image, DIGEST, DIGEST])
    images = [DIGEST.replace("gate@", f"{kind}@") for kind in ("gate", "cpu", "cuda")]
    script("pin_image").pin(tmp_path, images)
    after = (tmp_path / "action.yml").read_text(encoding="utf-8")
    changed = set(after.splitlines()) - set(before.splitlines())
    pinned = zip(names, images, strict=True)
    assert changed == {f"        {name}: '{image}'" for name, image in pinned}


def test_the_action_keeps_to_the_marketplaces_limits() -> None:
    """docs.github.com, "Publishing actions in GitHub Marketplace" and "Metadata syntax"."""
    action = load("container")
    colours = {"white", "black", "yellow", "blue", "green", "orange", "red", "purple", "gray-dark"}
    assert action["branding"]["color"] in colours and action["branding"]["icon"] == "repeat"
    assert 0 < len(action["name"]) <= 40 and 0 < len(action["description"]) <= 125, action[
        "description"
    ]
    assert (ROOT / "action.yml").is_file() and not list(ROOT.glob("action.yaml"))
    assert len([*ROOT.glob("**/action.yml")]) >= 3 and (ROOT / "README.md").is_file()
