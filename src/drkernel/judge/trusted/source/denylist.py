"""What the static check forbids, as tables. judge/CHEATS.md says which cheats are meant.

Processes, files and the network are denied. So is all that reaches the internals of torch or Triton, attributes of
other modules, or frames of the interpreter: on the simulated device the counters live in the submission's process.
Of modules the tables say what is allowed. Of members, attributes and names they say what is not.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MODULES = _words("""
    torch torch.nn torch.nn.functional torch.nn.init torch.nn.parameter torch.nn.utils torch.nn.utils.rnn
    torch.nn.utils.fusion torch.nn.utils.parametrizations torch.nn.attention torch.nn.common_types torch.nn.grad
    torch.cuda torch.cuda.amp torch.cuda.nvtx
    torch.cuda.graphs torch.cuda.streams torch.cuda.random torch.autograd torch.autograd.function
    torch.autograd.functional torch.autograd.grad_mode torch.autograd.profiler torch.profiler torch.library torch.ops
    torch.special torch.fft torch.linalg torch.amp torch.amp.autocast_mode torch.version torch.random torch.testing
    torch.types torch.utils torch.utils.checkpoint torch.sparse torch.func torch.functional torch.signal
    torch.signal.windows torch.compiler torch.jit torch.return_types torch.accelerator
    triton triton.language triton.language.math triton.language.random triton.language.standard
    triton.language.target_info triton.language.extra triton.language.extra.cuda triton.language.extra.libdevice
    triton.language.extra.cuda.libdevice triton.runtime triton.runtime.driver triton.runtime.errors
    triton.runtime.autotuner triton.runtime.jit triton.compiler triton.compiler.errors triton.errors triton.testing
    triton.tools triton.tools.tensor_descriptor
    numpy numpy.random numpy.typing math cmath typing typing_extensions functools itertools collections collections.abc
    dataclasses enum operator contextlib warnings abc copy numbers __future__ random time string re textwrap logging os
    os.path sys types statistics fractions decimal bisect heapq json pprint einops einops.layers
    einops.layers.torch packaging packaging.version platform threading weakref argparse traceback
""")
"""The modules that may be used."""

FAMILIES = ("torch.nn.modules", "torch.backends", "torch.distributions")
"""Packages whose modules may all be used."""

IMPORTS = frozenset(name.partition(".")[0] for name in MODULES)
"""Top-level modules that may be imported."""

_TYPES = _words("""
    Any Annotated Callable ClassVar Concatenate Final Generic Literal LiteralString Never NewType NoReturn NotRequired
    Optional ParamSpec Protocol Required Self Tuple Type TypeAlias TypeGuard TypeIs TypeVar TypeVarTuple TypedDict Union
    Unpack AbstractSet ByteString Collection Container ContextManager Generator Hashable ItemsView Iterable Iterator
    KeysView Mapping MutableMapping MutableSequence MutableSet Reversible Sequence Sized ValuesView SupportsAbs
    SupportsComplex SupportsFloat SupportsIndex SupportsInt SupportsRound Text List Set Dict DefaultDict FrozenSet
    Counter OrderedDict Deque ChainMap NamedTuple IO TextIO BinaryIO AnyStr Match Pattern TYPE_CHECKING cast final
    overload override runtime_checkable assert_never get_args get_origin is_typeddict deprecated ReadOnly TypeAliasType
    Awaitable Coroutine AsyncIterable AsyncIterator AsyncGenerator
""")
"""What typing has without what evaluates strings."""

ONLY = {
    "os": _words("environ getenv path cpu_count linesep sep name"),
    "os.path": _words("join dirname basename abspath exists isfile isdir splitext expanduser normpath sep"),
    "sys": _words("maxsize float_info version version_info platform byteorder stdout stderr"),
    "types": _words("SimpleNamespace MappingProxyType NoneType EllipsisType"),
    "dataclasses": _words("dataclass field fields asdict astuple replace is_dataclass InitVar KW_ONLY MISSING"),
    "functools": _words("cache cached_property lru_cache partial partialmethod reduce wraps total_ordering cmp_to_key"),
    "threading": _words("Lock RLock local"),
    "weakref": _words("WeakKeyDictionary WeakValueDictionary ref"),
    "traceback": _words("format_exc print_exc"),
    "argparse": _words("ArgumentParser Namespace ArgumentDefaultsHelpFormatter"),
    "abc": _words("ABC ABCMeta abstractmethod abstractproperty abstractclassmethod abstractstaticmethod"),
    "contextlib": _words("""
        contextmanager suppress nullcontext closing ExitStack ContextDecorator AbstractContextManager wraps
    """),
    "copy": _words("copy deepcopy"),
    "typing": _TYPES,
    "typing_extensions": _TYPES,
    "enum": _words("Enum IntEnum StrEnum Flag IntFlag auto unique member nonmember verify UNIQUE CONTINUOUS"),
    "triton.language.extra": _words("cuda libdevice"),
    "torch.profiler": _words("record_function"),
    "torch.autograd.profiler": _words("record_function"),
    "torch.compiler": _words("disable is_compiling is_dynamo_compiling is_exporting cudagraph_mark_step_begin"),
    "torch.jit": _words("is_scripting is_tracing ignore unused export Final"),
    "torch.nn.attention": _words("SDPBackend sdpa_kernel"),
    "torch.nn.parameter": _words("Parameter Buffer"),
    "torch.nn.grad": _words("conv1d_input conv1d_weight conv2d_input conv2d_weight conv3d_input conv3d_weight"),
    "torch.accelerator": _words("is_available current_accelerator current_device_index device_count synchronize"),
    "torch.utils": _words("checkpoint"),
    "einops.layers": _words("torch"),
    "einops.layers.torch": _words("Rearrange Reduce EinMix"),
    "triton.compiler": _words("errors CompilationError"),
    "triton.runtime": _words("driver Autotuner JITFunction Config autotuner jit errors OutOfResources"),
    "triton.runtime.driver": _words("active driver"),
    "triton.runtime.autotuner": _words("Config autotune heuristics Autotuner OutOfResources"),
    "triton.runtime.jit": _words("JITFunction jit constexpr_function"),
    "triton.tools": _words("tensor_descriptor"),
    "triton.tools.tensor_descriptor": _words("TensorDescriptor"),
    "triton.testing": _words("do_bench do_bench_cudagraph perf_report Benchmark assert_close"),
}
"""Modules of which only these members may be used."""

MEMBERS = {
    "torch": _words("""
        compile load save from_file frombuffer use_deterministic_algorithms set_deterministic_debug_mode classes
        fork wait set_default_tensor_type DispatchKey DispatchKeySet from_dlpack to_dlpack
        get_device_module
    """),
    "torch.nn": _words("DataParallel"),
    "torch.cuda": _words("cudart memory jiterator CUDAPluggableAllocator"),
    "torch.nn.modules.module": _words("""
        register_module_forward_hook register_module_forward_pre_hook register_module_full_backward_hook
        register_module_full_backward_pre_hook register_module_backward_hook register_module_buffer_registration_hook
        register_module_module_registration_hook register_module_parameter_registration_hook
    """),
    "torch.distributions.utils": _words("lazy_property"),
    "torch.ops": _words("load_library loaded_libraries"),
    "torch.library": _words("get_kernel"),
    "triton": _words("compile"),
    "triton.language": _words("core semantic"),
    "numpy": _words("""
        load save savez savez_compressed loadtxt savetxt fromfile memmap genfromtxt DataSource frombuffer from_dlpack
        fromregex fromstring
    """),
    "time": _words("sleep"),
    "logging": _words("FileHandler handlers config"),
    "operator": _words("attrgetter methodcaller matmul imatmul"),
    "string": _words("Formatter"),
}
"""Members that may not be used, by module."""

MODULE_DUNDERS = _words("__version__ __name__ __doc__ __file__")
"""Of a module's members that start with an underscore, these may be used."""

PRIVATE = {
    "torch": _words("_assert _check _check_index _check_type _check_value"),
    "torch.nn.init": _words("_calculate_fan_in_and_fan_out _calculate_correct_fan"),
    "torch.nn.modules.utils": _words("_single _pair _triple _quadruple _ntuple _reverse_repeat_tuple"),
    "torch.nn.modules.batchnorm": _words("_BatchNorm _NormBase"),
    "torch.nn.modules.conv": _words("_ConvNd"),
    "torch.nn.common_types": _words("_size_1_t _size_2_t _size_3_t"),
    "triton.language.standard": _words("_log2"),
}
"""Members that start with an underscore and that people use all the same: pure functions, classes and types."""

FROZEN = IMPORTS | {"builtins"}
"""Top-level modules whose attributes and items may not be assigned or deleted, except SETTABLE."""
SETTABLE = ("torch.backends.", "os.environ")

BUILTINS = _words("""
    eval exec compile open vars globals locals __import__ breakpoint delattr memoryview __builtins__ __loader__ __spec__
    __build_class__
""")
"""Built-in names that may not be used, unless a function binds them itself."""

ONLY_CALLED = _words("getattr setattr type")
"""Built-in names that may be called and not be values."""

MATCHED_WHOLE = _words("bool bytearray bytes dict float frozenset int list set str tuple")
"""Built-in classes of which a pattern's one place is the value itself."""

ONE_ARGUMENT = {"functools.wraps"}
"""Functions that may only be called, with one argument: the others name attributes that they read and write."""

ONLY_WITH = {"logging.basicConfig": _words("level format datefmt")}
"""Functions that may only be called, with these keywords alone: others open files or hand objects on."""

ONLY_ENTERED = {"warnings.catch_warnings"}
"""Classes whose instances may be entered and not be values: they have modules as attributes."""

PARSERS = _words("parse_args parse_known_args parse_intermixed_args parse_known_intermixed_args")
"""Methods of argparse that set attributes of an object that they are given as `namespace`."""

OF_KERNELS = _words("handle fn run _body")
"""Attributes that may not be set on a kernel of the source: what runs is what was checked."""

UNBOUND = _words("__name__ __builtins__ __import__ __build_class__ __loader__ __spec__ __debug__ __annotations__")
"""Names that may not be assigned: a block under `if __name__ == "__main__":` must never run."""

ATTRIBUTES = _words("""
    __dict__ __globals__ __code__ __class__ __subclasses__ __bases__ __base__ __mro__ __builtins__ __closure__ __func__
    __self__ __getattribute__ __reduce__ __reduce_ex__ __defaults__ __kwdefaults__ __wrapped__ __import__ __loader__
    __spec__ __torch_function__ __torch_dispatch__ __array_interface__ __setattr__ __delattr__ __init_subclass__
    __cuda_array_interface__ __subclasshook__ __instancecheck__ __module__ __weakref__ __traceback__ __annotations__
    __array_struct__ __array__ __dlpack__ __dlpack_device__ __buffer__ __objclass__ __thisclass__ __self_class__
    __annotate__ __type_params__ __set_name__ __class_getitem__ __mro_entries__ __prepare__ mro
    f_back f_locals f_globals f_code f_builtins gi_frame gi_code cr_frame tb_frame tb_next ag_frame co_code
    _make_subclass _make_wrapper_subclass as_subclass untyped_storage storage _typed_storage set_ register_forward_hook
    register_forward_pre_hook tofile share_memory_ from_buffer redispatch redispatch_boxed _op_dk
    get_field vformat __getstate__ _flatten_ir __match_args__ __forward_arg__ __forward_code__ _evaluate _convert_
    ctypes get_device_interface
""")
"""Attributes that may not be used on any object."""

OF_BLOCKS = _words("handle")
"""Attributes that may not be used in a kernel: what lies behind them is the compiler's, or the interpreter's."""

SPELLED = _words("__array_interface__ __array_struct__ __cuda_array_interface__ __array__ __dlpack__ __buffer__")
"""Names that no class may define and no keyword or string may spell: other libraries ask for them on any object."""

PLAIN_WORDS = _words("get_device_interface mro storage ctypes set_ redispatch tofile vformat")
"""Of the attributes that may not be used, those that a string may spell all the same: they are words of any text."""

METHODS = SPELLED | _words("""
    __getattribute__ __torch_function__ __torch_dispatch__ __reduce__ __reduce_ex__ __init_subclass__
    __class_getitem__ __mro_entries__ __prepare__ __instancecheck__ __subclasshook__ __match_args__
""")
"""Methods that no class may define."""

MODULE_METHODS = _words("__call__ _call_impl")
"""Methods that no module may define: `model(x)` must be `forward`."""

TENSORS = _words("""
    torch.Tensor torch.nn.Parameter torch.nn.parameter.Parameter torch.nn.Buffer torch.nn.parameter.Buffer
    torch.FloatTensor torch._tensor.Tensor
""")
"""Classes that may not be derived from."""

BASES = _words("""
    torch.nn torch.autograd typing typing_extensions enum abc collections contextlib numbers threading json logging
""")
"""Modules whose classes, and those of their parts, may be derived from."""

BACKEND_OPERATORS = _words("aten")
"""Namespaces of torch.ops that may be used besides those that the submission defines."""
