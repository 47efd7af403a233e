"""Claims about `diagnosis.operators`: the first operator with equal inputs and other outputs,
aligned by what it is and not by position."""

from __future__ import annotations

from repro_gate.diagnosis.operators import around, culprit, undispatched
from tests.support.uses import call


def test_the_first_with_equal_inputs_and_other_outputs_is_it() -> None:
    first, second = (
        [call("aten.mm", "i", "m"), call("aten.put", "m", put), call("aten.relu", put, put)]
        for put in ("p1", "p2")
    )
    for other in (second, [call("aten.copy", "x", "x"), *second]):
        found = culprit(first, other)
        assert found is not None and (found.operator, found.equal_before) == (first[1], 1)
    names = [f"aten.op{number}" for number in range(20)]
    first = [call(name, "i", "o") for name in names]
    second = [
        call(name, "i" if number < 10 else "j", "o" if number < 9 else "p")
        for number, name in enumerate(names)
    ]
    found = around(first, second)
    assert [item.name for item in found] == names[4:15]
    assert [(item.same_inputs, item.same_outputs) for item in found[5:7]] == [
        (True, False),
        (False, False),
    ]
    assert around(first, first) == ()


def test_an_element_wise_operator_or_a_collective_is_never_it() -> None:
    first, second = (
        [call("aten.mm", "i", "m"), call("aten.add", "m", outputs, simple=True)]
        for outputs in ("a1", "a2")
    )
    found = culprit(first, second)
    assert found is not None and found.after == "aten.mm"
    laid = undispatched(found)
    assert (laid.cause, laid.file, laid.line, laid.confirmed) == ("unknown", "net.py", 5, False)
    assert "between aten.mm and aten.add, behind 1 that" in laid.evidence[0]
    # inputs that differ with all before equal were written by something else
    found = culprit([call("aten.mm", "i1", "m1")], [call("aten.mm", "i2", "m2")])
    assert found is not None and "the beginning of the step" in found.after
    assert culprit([call("c10d.allreduce_", "i", "a")], [call("c10d.allreduce_", "i", "b")]) is None
    records = [call("aten.mm", "i", "m"), call("aten.relu", "m", "r")]
    assert culprit(records, records) is None


def test_an_operator_is_named_only_where_its_inputs_were_equal_in_values_and_form() -> None:
    one, same, other = (
        [call("aten.mm", "i", "m"), call("aten.sum", "m", out, form=form)]
        for out, form in (("a", "rows"), ("b", "rows"), ("b", "columns"))
    )
    found, innocent = culprit(one, same), culprit(one, other)
    assert found is not None and not found.after
    assert innocent is not None and innocent.after == "aten.mm"
    assert [item.same_inputs for item in around(one, same)] == [True, True]
    assert [item.same_inputs for item in around(one, other)] == [True, False]
    # another form that changes nothing is no explanation
    assert culprit(one, [one[0], call("aten.sum", "m", "a", form="columns")]) is None
    # what lies on a device, only a kernel wrote
    for device, cause in (("cuda", "nondeterministic-op"), ("cpu", "unknown")):
        read = [call("aten.div", bits, bits, device=device) for bits in "ab"]
        found = culprit(read[:1], read[1:])
        assert found is not None and undispatched(found).cause == cause
