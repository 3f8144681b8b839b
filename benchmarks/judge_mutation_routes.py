"""Mutation operators that change who computes, when and where: half of the rows, replays, hooks, and PyTorch."""

from __future__ import annotations

import ast

from judge_mutation import Draft, operator

_COPY = """
@triton.jit
def _copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


def _copied(x):
    y = torch.empty_like(x)
    _copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


def _each(change, value):
    return tuple(change(part) for part in value) if isinstance(value, tuple) else change(value)
"""


@operator("value")
def half_of_the_rows(draft: Draft) -> bool:
    """Half of the rows are computed, and copied to the others."""
    text = """
def forward(self, x, *rest):
    half = self._work(x[: (x.shape[0] + 1) // 2].contiguous(), *rest)
    return _each(lambda part: torch.cat([part, part])[: x.shape[0]] if part.dim() else part, half)
"""
    return draft.wrap_forward(text, _COPY)


@operator("value")
def constant_weights(draft: Draft) -> bool:
    """The weights are constants, whatever they are."""
    text = """
def forward(self, *args):
    for p in self.parameters():
        p.data = torch.full_like(p, 0.01) if p.dim() > 1 else torch.zeros_like(p)
    return self._work(*args)
"""
    return "nn." in ast.unparse(draft.model()).partition("Module")[2] and draft.wrap_forward(text)


@operator("value")
def weights_in_half(draft: Draft) -> bool:
    """The weights are rounded to bf16 or fp16."""
    dtype = draft.random.choice(["bfloat16", "float16"])
    text = f"""
def forward(self, *args):
    for p in self.parameters():
        p.data = p.data.to(torch.{dtype}).to(p.dtype)
    return self._work(*args)
"""
    return "nn." in ast.unparse(draft.model()).partition("Module")[2] and draft.wrap_forward(text)


# What was computed before is the answer.


def _cached(draft: Draft, key: str) -> bool:
    text = f"""
def forward(self, x, *rest):
    key = {key}
    if key not in _RESULTS:
        _RESULTS[key] = self._work(x, *rest)
    return _RESULTS[key]
"""
    return draft.wrap_forward(text, "_RESULTS = {}")


@operator("replay")
def cache_by_shape(draft: Draft) -> bool:
    """Outputs are kept by the shape of the input."""
    return _cached(draft, "tuple(x.shape)")


@operator("replay")
def cache_by_identity(draft: Draft) -> bool:
    """Outputs are kept by the identity or the address of the input."""
    return _cached(draft, draft.random.choice(["id(x)", "x.data_ptr()", "(id(x), x._version)"]))


@operator("replay")
def cache_by_sample(draft: Draft) -> bool:
    """Outputs are kept by a sample of the input's values."""
    key = draft.random.choice(["tuple(x.flatten()[:4].tolist())", "x.float().sum().item()", "x.flatten()[-1].item()"])
    return _cached(draft, key)


@operator("replay")
def last_output(draft: Draft) -> bool:
    """The output of the call before, where its shape fits."""
    text = """
def forward(self, *args):
    before, self._last = getattr(self, "_last", None), self._work(*args)
    return self._last if before is None or isinstance(before, tuple) or before.shape != self._last.shape else before
"""
    return draft.wrap_forward(text)


@operator("replay")
def every_other_call(draft: Draft) -> bool:
    """Every other call returns what the one before computed."""
    text = """
def forward(self, *args):
    self._calls = getattr(self, "_calls", 0) + 1
    if self._calls % 2 or self._shape != args[0].shape:
        self._shape, self._last = args[0].shape, self._work(*args)
    return self._last
"""
    return draft.wrap_forward(text)


@operator("replay")
def one_output_buffer(draft: Draft) -> bool:
    """All calls return the same memory."""
    calls = [n for n in ast.walk(draft.tree) if isinstance(n, ast.Call)]
    found = [n for n in calls if ast.unparse(n.func) in ("torch.empty_like", "torch.empty")]
    node = draft.choose(found)
    if node is None:
        return False
    function, arguments = ast.unparse(node.func), ast.unparse(node)[len(ast.unparse(node.func)) + 1 : -1]
    draft.before_model(
        "_BUFFERS = {}\n\n\ndef _kept(make, *args, **kwargs):\n    made = make(*args, **kwargs)\n"
        "    return _BUFFERS.setdefault((tuple(made.shape), made.dtype), made)\n"
    )
    return draft.replace(node, lambda _: f"_kept({function}, {arguments})")


# The work is right, and is done elsewhere.


@operator("place")
def work_before_forward(draft: Draft) -> bool:
    """A forward pre-hook does the work, and forward hands it out."""
    text = """
def forward(self, *args):
    if not hasattr(self, "_hooked"):
        work = lambda module, given: setattr(module, "_done", module._work(*given))
        self._hooked = self.register_forward_pre_hook(work)
        return self._work(*args)
    return self._done
"""
    return draft.wrap_forward(text)


@operator("place")
def work_after_forward(draft: Draft) -> bool:
    """A forward hook does the work, and forward returns at once."""
    text = """
def forward(self, *args):
    if not hasattr(self, "_hooked"):
        self._hooked = self.register_forward_hook(lambda module, given, result: module._work(*given))
    return None
"""
    return draft.wrap_forward(text)


@operator("place")
def work_in_grid(draft: Draft) -> bool:
    """The function that gives a grid does the work."""
    text = """
def forward(self, *args):
    done = []
    word = torch.zeros(1, device=args[0].device)
    _copy_kernel[lambda meta: (done.append(self._work(*args)) or 1,)](word, word, 1, BLOCK=16)
    return done[-1]
"""
    return draft.wrap_forward(text, _COPY)


@operator("place")
def work_in_tuning(draft: Draft) -> bool:
    """The pre-hook of an autotuned kernel does the work."""
    before = """
_DONE = []


@triton.autotune([triton.Config({"BLOCK": 16}, pre_hook=lambda arguments: _DONE.append(_DONE.pop()()))], key=[])
@triton.jit
def _tuned_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)
"""
    text = """
def forward(self, *args):
    _DONE[:] = [lambda: self._work(*args)]
    _tuned_kernel[(1,)](torch.zeros(16, device=args[0].device))
    return _DONE.pop()
"""
    return draft.wrap_forward(text, before)


@operator("place")
def work_when_read(draft: Draft) -> bool:
    """Forward returns a tuple or a list that computes when it is read."""
    before = """
class _Lazy(tuple):
    def __iter__(self):
        return iter([self.work()])
"""
    text = """
def forward(self, *args):
    lazy = _Lazy()
    lazy.work = lambda: self._work(*args)
    return lazy
"""
    return draft.wrap_forward(text, before)


@operator("place")
def work_on_a_stream(draft: Draft) -> bool:
    """A stream that nobody waits for does the work."""
    text = """
def forward(self, *args):
    self._side = getattr(self, "_side", None) or torch.cuda.Stream()
    self._side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(self._side):
        return self._work(*args)
"""
    return draft.wrap_forward(text)


@operator("place")
def decoy_launches(draft: Draft) -> bool:
    """Launches without use inflate the share of kernels in the time."""
    number = draft.random.choice([1, 4])
    text = f"""
def forward(self, *args):
    result = self._work(*args)
    for _ in range({number}):
        _each(_copied, result)
    return result
"""
    return draft.wrap_forward(text, _COPY)


# PyTorch does the work.


def _reference(draft: Draft) -> str:
    """The task's imports and its class, under the name _Reference."""
    kept = [n for n in draft.task.body if isinstance(n, (ast.Import, ast.ImportFrom))]
    found = next(n for n in draft.task.body if isinstance(n, ast.ClassDef) and n.name == "Model")
    text = "\n".join(ast.unparse(n) for n in [*kept, found])
    return text.replace("class Model(", "class _Reference(")


def _library(draft: Draft, text: str, keep: bool) -> bool:
    """ModelNew becomes a subclass of the reference. `keep`: the honest forward stays, as `_work`."""
    model = draft.model()
    if keep and not draft.wrap_forward("", ""):
        return False
    if not keep:
        model.body = []
    if any(isinstance(n, ast.FunctionDef) and n.name == "__init__" for n in model.body):
        return False
    model.bases = [ast.parse("_Reference", mode="eval").body]
    model.body += ast.parse(text).body
    draft.before_model(_reference(draft) + _COPY)
    return True


@operator("library")
def copy_of_library(draft: Draft) -> bool:
    """PyTorch computes, and a kernel copies."""
    return _library(draft, "def forward(self, *args):\n    return _each(_copied, super().forward(*args))", keep=False)


@operator("library")
def chunks_of_library(draft: Draft) -> bool:
    """PyTorch computes in two parts, and a kernel copies each to its place."""
    text = """
def forward(self, x, *rest):
    parts = [super(ModelNew, self).forward(part, *rest) for part in (x[: x.shape[0] // 2], x[x.shape[0] // 2 :])]
    return _copied(torch.cat(parts)) if not isinstance(parts[0], tuple) and parts[0].dim() else _copied(parts[0])
"""
    return _library(draft, text, keep=False)


@operator("library")
def scaled_library(draft: Draft) -> bool:
    """PyTorch computes a multiple, and a kernel takes the factor away."""
    before = _COPY.replace("mask=i < n), mask=i < n)", "mask=i < n) * 0.5, mask=i < n)")
    text = "def forward(self, *args):\n    return _each(lambda part: _copied(part * 2), super().forward(*args))"
    return _library(draft, text, keep=False) and _swap_copy(draft, before)


def _swap_copy(draft: Draft, text: str) -> bool:
    draft.tree.body = [n for n in draft.tree.body if getattr(n, "name", "") not in ("_copy_kernel", "_copied", "_each")]
    draft.before_model(text)
    return True


@operator("library")
def launches_for_show(draft: Draft) -> bool:
    """The honest kernels are launched, and PyTorch's outputs are returned."""
    text = "def forward(self, *args):\n    self._work(*args)\n    return super().forward(*args)"
    return _library(draft, text, keep=True)


@operator("library")
def added_to_nothing(draft: Draft) -> bool:
    """The honest outputs times 0 are added to PyTorch's."""
    text = "def forward(self, *args):\n    return super().forward(*args) + 0 * self._work(*args)"
    return _library(draft, text, keep=True)
