"""What the static check forbids, as tables. judge/README.md, "Classes of cheats", says which cheats are meant.

Processes, files and the network are denied. So is all that reaches the internals of torch or Triton, attributes of
other modules, or frames of the interpreter: on the simulated device the counters live in the submission's process.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IMPORTS = _words("""
    torch triton math cmath typing typing_extensions functools itertools collections dataclasses enum operator
    contextlib warnings abc copy numbers __future__ numpy random time string re textwrap logging os sys types statistics
    fractions decimal bisect heapq json pprint einops packaging platform
""")
"""Top-level modules that may be imported."""

MODULES = _words("""
    torch._C torch._dynamo torch._inductor torch._functorch torch._ops torch._subclasses torch._higher_order_ops
    torch.overrides torch.utils._python_dispatch torch.utils._pytree torch.utils.cpp_extension torch.utils.dlpack
    torch.utils.data torch.utils.hooks torch.utils.flop_counter torch.utils.benchmark torch.jit torch.compiler
    torch.export torch.fx torch.multiprocessing torch.distributed torch.hub torch.serialization torch.storage
    torch.package torch.profiler torch.autograd.profiler torch.autograd.graph torch.onnx torch.monitor torch.futures
    triton.runtime triton.compiler triton.backends triton.tools triton.testing
    triton.profiler triton._C triton.knobs triton.language.core triton.language.semantic triton.experimental
    numpy.ctypeslib numpy.lib.npyio numpy.testing numpy.f2py numpy.distutils numpy.core numpy._core
""")
"""Modules that may not be used; of those in ONLY, a few members may be."""

ONLY = {
    "os": _words("environ getenv path cpu_count linesep sep name"),
    "os.path": _words("join dirname basename abspath exists isfile isdir splitext expanduser normpath sep"),
    "sys": _words("maxsize float_info version version_info platform byteorder stdout stderr"),
    "types": _words("SimpleNamespace MappingProxyType NoneType EllipsisType"),
    "torch.profiler": _words("record_function"),
    "torch.autograd.profiler": _words("record_function"),
    "triton.compiler": _words("errors CompilationError"),
    "triton.runtime": _words("driver Autotuner JITFunction Config autotuner jit errors OutOfResources"),
    "triton.runtime.driver": _words("active driver"),
    "triton.runtime.autotuner": _words("Config autotune heuristics Autotuner"),
    "triton.runtime.jit": _words("JITFunction"),
    "triton.tools": _words("tensor_descriptor"),
    "triton.tools.tensor_descriptor": _words("TensorDescriptor"),
    "triton.testing": _words("do_bench"),
}
"""Modules of which only these members may be used."""

MEMBERS = {
    "torch": _words("""
        compile jit load save from_file frombuffer use_deterministic_algorithms set_deterministic_debug_mode classes
        UntypedStorage TypedStorage fork wait
    """),
    "torch.cuda": _words("cudart memory jiterator CUDAPluggableAllocator"),
    "torch.nn.modules.module": _words("""
        register_module_forward_hook register_module_forward_pre_hook register_module_full_backward_hook
    """),
    "torch.ops": _words("load_library loaded_libraries"),
    "triton": _words("compile"),
    "numpy": _words("load save savez savez_compressed loadtxt savetxt fromfile memmap genfromtxt DataSource"),
    "time": _words("sleep"),
    "logging": _words("FileHandler handlers config basicConfig"),
    "operator": _words("attrgetter methodcaller"),
}
"""Members that may not be used, by module."""

INTERNAL = _words("""
    torch triton torch.nn torch.cuda torch.nn.functional triton.language torch.utils torch.autograd
""")
"""Modules whose underscored members may not be used."""

FROZEN = IMPORTS | {"builtins"}
"""Top-level modules whose attributes and items may not be assigned or deleted, except SETTABLE."""
SETTABLE = ("torch.backends.", "os.environ")

BUILTINS = _words("""
    eval exec compile open vars globals locals __import__ breakpoint delattr memoryview __builtins__ __loader__ __spec__
""")
"""Built-in names that may not be used, unless the submission binds them itself."""

ATTRIBUTES = _words("""
    __dict__ __globals__ __code__ __class__ __subclasses__ __bases__ __base__ __mro__ __builtins__ __closure__ __func__
    __self__ __getattribute__ __reduce__ __reduce_ex__ __defaults__ __kwdefaults__ __wrapped__ __import__ __loader__
    __spec__ __torch_function__ __torch_dispatch__ __array_interface__ __setattr__ __delattr__ __init_subclass__
    __cuda_array_interface__ __subclasshook__ __instancecheck__ __module__ __weakref__ __traceback__
    f_back f_locals f_globals f_code f_builtins gi_frame gi_code cr_frame tb_frame tb_next ag_frame co_code
    _make_subclass _make_wrapper_subclass untyped_storage storage _typed_storage set_ register_forward_hook
    register_forward_pre_hook tofile share_memory_ from_buffer
""")
"""Attributes that may not be used on any object."""

METHODS = _words("""
    __call__ __getattribute__ __torch_function__ __torch_dispatch__ _call_impl __reduce__ __reduce_ex__
""")
"""Methods that no class may define."""

TENSORS = _words("torch.Tensor torch.nn.Parameter torch.nn.parameter.Parameter torch.FloatTensor torch._tensor.Tensor")
"""Classes that may not be derived from."""
