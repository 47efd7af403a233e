"""Every entry of the list in the installed torch's documentation has a case, or is reported to have
none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from repro_gate.ops import documented
from repro_gate.ops.case import FLOATS, Case
from repro_gate.ops.cases import catalog
from repro_gate.ops.documented import Entry

_LIST = """Sets …, they will throw a :class:`RuntimeError` when called.

    The following normally-nondeterministic operations will act
    deterministically when ``mode=True``:

        * :func:`torch.Tensor.index_copy` when called on a CPU or CUDA tensor
        * :func:`torch.new_one` when attempting to differentiate a CUDA tensor
          and the index is a list

    The following normally-nondeterministic operations will throw a
    :class:`RuntimeError` when ``mode=True``:

        * :func:`torch.nn.functional.interpolate` when attempting to differentiate a CUDA tensor
          and one of the following modes is used:

          - ``linear``
        * :class:`torch.nn.MaxUnpool1d`

    In addition, several operations …
        * :func:`torch.not_listed`
"""


def _nothing(make: Any) -> Any:
    raise AssertionError


def test_entries_are_read_with_their_continuations_devices_and_directions() -> None:
    torch = SimpleNamespace(use_deterministic_algorithms=SimpleNamespace(__doc__=_LIST))
    found = documented.entries(torch)
    assert [(entry.kind, entry.devices, entry.directions) for entry in found] == [
        ("deterministic", ("cpu", "cuda"), ("forward",)),
        ("deterministic", ("cuda",), ("backward",)),
        ("raises", ("cuda",), ("backward",)),
        ("raises", ("cpu", "cuda"), ("forward", "backward")),
    ]
    assert (
        found[1].text
        == "torch.new_one when attempting to differentiate a CUDA tensor and the index is a list"
    )
    assert found[2].text.endswith("is used: - linear")


def test_an_entry_without_a_case_is_returned_and_the_other_told_to_its_case() -> None:
    case = Case("index_copy_", _nothing, entry=r"index_copy")
    entry = Entry("torch.Tensor.index_copy", "deterministic", ("cpu",), ("forward",))
    other = Entry("torch.new_one", "raises", ("cuda",), ("backward",))
    assert documented.assign([case], [entry, other]) == [other]
    assert case.documented == {"cpu": {"forward": "deterministic"}}


def test_every_entry_of_the_installed_torch_has_a_case(torch: Any) -> None:
    found = documented.entries(torch)
    assert len(found) >= 40 and {entry.kind for entry in found} == {"deterministic", "raises"}
    cases, _ = catalog(torch, "cpu", {"cases": []})
    assert not documented.assign(cases, found)


def test_a_case_whose_draws_no_seed_resets_on_cuda_is_left_out_there_and_named(torch: Any) -> None:
    (here, notes), (there, told) = (
        catalog(torch, device, {"cases": []}) for device in ("cpu", "cuda")
    )
    name = "kernel/GRU (dropout)"
    assert {case.name for case in here} - {case.name for case in there} == {name}
    assert (
        not any(name in note for note in notes)
        and sum(note.startswith(f"{name} is not measured on CUDA") for note in told) == 1
    )


def test_the_kernels_are_measured_in_all_four_float_dtypes(torch: Any) -> None:
    cases, _ = catalog(torch, "cpu", {"cases": []})
    fewer = {
        case.operator
        for case in cases
        if case.source == "kernel" and not set(FLOATS) <= set(case.dtypes)
    }
    integers = {"mm (integers)", "bincount", "cumsum (integers)"}
    assert fewer == integers | {"randperm", "resize_ (quantized)"}, (
        "only these are of other dtypes by their nature"
    )


def test_case_names_are_unique(torch: Any) -> None:
    cases, _ = catalog(torch, "cpu", {"cases": []})
    assert len({case.name for case in cases}) == len(cases) > 200
