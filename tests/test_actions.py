"""The action files: inputs and outputs of the three that gate are the same, names and defaults are
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
from tests.support.composite import ACTIONS, FOLDERS, ROOT, load, steps
from tests.support.reports import PASS
from tests.support.shell import script, shellcheck

EXTRAS = {"native": ["python"], "docker-run": ["image", "gpus", "shm_size"]}  # those that gate
OF_THE_COMMENT = {"token", "comment", "pull_request", "comment_url"}  # what `native` does not have
PUBLISHING = {"native": "gate", "docker-run": "publish", "comment": "comment"}  # the step that does
PAGE = (ROOT / "docs/action.md").read_text(encoding="utf-8")
DIGEST = "ghcr.io/org/gate@sha256:" + "0123456789abcdef" * 4


def table(name: str) -> list[str]:
    """The rows of one of the page's marked tables."""
    return PAGE.split(f"<!-- {name} -->\n")[1].split(f"<!-- /{name} -->")[0].splitlines()[2:]


def row(name: str, item: dict[str, str]) -> str:
    default = "" if name == "image" else item["default"]  # a release fills it
    return f"| `{name}` | {f'`{default}`' if default else ''} | {item['description']} |"


def test_inputs_and_outputs_are_those_of_the_code_and_the_container_action() -> None:
    fields = {name.removeprefix("INPUT_").lower() for name in Inputs.__struct_encode_fields__}
    defaults = {name: item["default"] for name, item in load("container")["inputs"].items()}
    assert set(defaults) == fields and defaults.pop("token") == "${{ github.token }}"
    for name, value in defaults.items():
        assert read_inputs({f"INPUT_{name.upper()}": value}) == Inputs(), name
    assert list(load("container")["outputs"]) == list(outputs_of(PASS, Inputs(), Posted("skipped")))
    for name in EXTRAS:
        other, left_out = load(name), OF_THE_COMMENT if name == "native" else set()
        inputs, outputs = (
            {key: item for key, item in load("container")[part].items() if key not in left_out}
            for part in ("inputs", "outputs")
        )
        assert {key: item for key, item in other["inputs"].items() if key in inputs} == inputs
        assert list(other["inputs"]) == [*inputs, *EXTRAS[name]]
        said = {key: {"description": item["description"]} for key, item in other["outputs"].items()}
        assert said == outputs


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
    for name, keys in {**EXTRAS, "comment": load("comment")["inputs"]}.items():
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
    in_order = steps("docker-run")
    token = re.compile(r"inputs\.token\b")
    assert [key for key, step in in_order.items() if token.search(str(step.get("env")))] == [
        "publish"
    ]
    assert inputs_of("container") <= environment_of("docker-run", "publish")
    assert inputs_of("container") - environment_of("docker-run", "gate") == {"INPUT_TOKEN"}
    assert in_order["gate"]["continue-on-error"] is True
    assert "always()" in in_order["publish"]["if"]
    assert "continue-on-error" not in in_order["publish"]
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
    scripts = {key: step["run"] for key, step in steps(name).items()}
    assert not [text for text in scripts.values() if "${{" in text]
    shellcheck({**scripts, "setup": (ROOT / "native/setup").read_text()}, tmp_path)


def test_a_branch_builds_its_image_and_pinning_changes_that_alone(tmp_path: Path) -> None:
    runs, extra = load("container")["runs"], load("docker-run")["inputs"]["image"]["default"]
    if runs["image"] == "Dockerfile":
        assert (ROOT / "Dockerfile").is_file() and extra == "" and "env" not in runs
    else:
        assert re.fullmatch(r"docker://.+@sha256:[0-9a-f]{64}", runs["image"])
        assert runs["image"] == f"docker://{extra}" == f"docker://{runs['env']['REPRO_GATE_IMAGE']}"
    if load("container")["runs"]["image"] != "Dockerfile":
        pytest.skip("this is a release: its image has been pinned already")
    files = {name: tmp_path / FOLDERS[name] / "action.yml" for name in EXTRAS | {"container": []}}
    for name, copy in files.items():
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(ACTIONS[name], copy)
    no_digests = ("ghcr.io/org/gate:v1", "ghcr.io/org/gate@sha256:abc", f"{DIGEST}'\n  x: '")
    for image in no_digests:
        with pytest.raises(ValueError, match="not an image by digest"):
            script("pin_image").pin(tmp_path, image)
    script("pin_image").pin(tmp_path, DIGEST)
    container, extra = (
        yaml.safe_load(files[key].read_text()) for key in ("container", "docker-run")
    )
    pinned = {"image": f"docker://{DIGEST}", "env": {"REPRO_GATE_IMAGE": DIGEST}}
    assert container == {**load("container"), "runs": {"using": "docker", **pinned}}
    assert extra["inputs"]["image"]["default"] == DIGEST
    extra["inputs"]["image"]["default"] = ""
    assert extra == load("docker-run")
    assert files["native"].read_bytes() == ACTIONS["native"].read_bytes()
