"""Steps that optimizers take in functions compiled with `fullgraph=True`, which no hook may
interrupt: while such a function runs, the compiler finds in the place of the hooks one that only
lists the optimizer, and the steps are recorded when the function returns."""

from __future__ import annotations

from typing import Any, Callable

from .imports import wrap_later

_MANY = "several steps in one function compiled with fullgraph=True were recorded when it returned"


def watch(main: Any, handles: Any) -> None:
    """Watch for the steps of compiled functions. `main` are the main thread's hooks, `handles`
    those of the functions that torch calls before and after a step."""
    stepped: list[Any] = []

    def note(optimizer: Any, *_: Any) -> None:
        stepped.append(optimizer)

    def put(functions: Any) -> list[Any]:
        """Put these in the place of the hooks; return what was there."""
        before = []
        for handle, function in zip(handles, functions):
            hooks = handle.hooks_dict_ref()
            before.append(hooks[handle.id])
            hooks[handle.id] = function
        return before

    def entered() -> Callable[[], None]:
        before = put((lambda *_: None, note))

        def left() -> None:
            put(before)
            optimizers = stepped[:]
            stepped.clear()
            hooks = main.of_thread()
            if optimizers[1:]:
                hooks.session.note("compiled-steps", _MANY)
            hooks.took(optimizers)

        return left

    def assert_whole(original: Any, *args: Any, **kwargs: Any) -> Any:
        context = original(*args, **kwargs)
        context.enter_exit_hooks.append(entered)
        return context

    wrap_later("torch._dynamo.eval_frame", "optimize_assert", assert_whole)
