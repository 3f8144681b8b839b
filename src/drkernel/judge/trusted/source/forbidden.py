"""What the static check refuses in a syntax tree: routes to what a submission may not reach, and no habit of writing.

- A module may be the start of an attribute chain, and nothing else: it is never stored, passed or returned.
- So it is with `getattr`, `setattr` and `type`, which may only be called, with a name that is written out.
- Only listed modules are used, by their own names: `logging.sys` is the module sys.
- Members are used under the name of the module where they are at home, or obey its table.
- Listed attributes are used on no object, by whatever syntax, and few strings spell them.
- Classes derive from what is written in the source or listed.

`denylist` has the tables; judge/CHEATS.md says which cheats they refuse.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
from collections.abc import Iterable
from typing import Any

from drkernel.judge.boundary.custom_operators import own_namespaces
from drkernel.judge.trusted.source import denylist, origins
from drkernel.judge.trusted.source.annotations import Types
from drkernel.judge.trusted.source.computed_names import LoopNames, is_harmless
from drkernel.judge.trusted.source.kernel_functions import KernelFunctions
from drkernel.judge.trusted.source.source_names import home_of, module_named
from drkernel.tasks.scopes import COMPREHENSIONS, Names, alternatives, bound_by, chain

_MAX_DEPTH = 20
"""Of classes that derive from each other."""
_HARMLESS = {"hasattr": 1, "getattr": 1, "isinstance": 2, "issubclass": 2, "print": 99}
"""Built-in functions, and so many of their arguments, of which they hand nothing on."""
_OPERATOR = frozenset({"ns", "name", "qualname", "op"})
"""Parameters of torch.library that say which operators a call is about, and come first."""
_NO_ANNOTATION = (
    ast.Call, ast.Lambda, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.JoinedStr, *COMPREHENSIONS
)  # fmt: skip


class Found(Exception):
    """A forbidden construct and its line."""

    def __init__(self, node: ast.AST, what: str):
        super().__init__(what)
        self.line, self.what = getattr(node, "lineno", None), what


class Check(ast.NodeVisitor):
    """Raises Found at the first forbidden construct."""

    def __init__(self, names: Names, tree: ast.Module):
        self.names = names
        self.namespaces = _namespaces(tree)
        self.types, self.loop_names = Types(names, tree), LoopNames(tree)
        self.in_kernel = False
        self.may_be_module: set[int] = set()
        """Identities of nodes that may stand for a module."""
        self.named: set[int] = set()
        """Identities of nodes that are called, entered, annotations or bases, and are no values there."""
        self.kernels = KernelFunctions(tree, names)

    def visit(self, node: ast.AST) -> None:
        for name in bound_by(node):
            if name in denylist.UNBOUND:
                raise Found(node, f"assignment to {name}")
        super().visit(node)

    # modules

    def visit_Import(self, node: ast.Import) -> None:
        self._import(node)
        for alias in node.names:
            self._imported_module(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._import(node)
        if node.level or not node.module:
            raise Found(node, "a relative import")
        self._imported_module(node, node.module)
        for alias in node.names:
            if alias.name == "*" and node.module not in ("math", "cmath"):
                raise Found(node, f"import of everything from {node.module}")
            if alias.name != "*":
                self._dotted(node, f"{node.module}.{alias.name}")

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if self.names.here.kind is ast.ClassDef or self.names.here.elsewhere & set(bound_by(node)):
            raise Found(node, "an import into another scope")

    def _imported_module(self, node: ast.AST, name: str) -> None:
        if name.partition(".")[0] not in denylist.IMPORTS:
            raise Found(node, f"import of {name}")
        self._dotted(node, name)
        if not origins.is_allowed(module_named(name) or name):
            raise Found(node, name)

    def _dotted(self, node: ast.AST, path: str) -> None:
        """Refuses a dotted origin that leads to, or through, something forbidden."""
        if what := origins.forbidden(path, self.namespaces):
            raise Found(node, what)

    def visit_Assign(self, node: ast.Assign) -> None:
        if self.names.is_alias(node):
            self.may_be_module.update(map(id, alternatives(node.value)))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """`triton is not None` shows nothing to what it compares with."""
        if all(isinstance(operator, (ast.Is, ast.IsNot)) for operator in node.ops):
            self.may_be_module.update(id(side) for side in (node.left, *node.comparators))
        self.generic_visit(node)

    def _value(self, node: ast.Name | ast.Attribute) -> None:
        """A module may not be a value, because its alias could be patched: `patch(json)`, where `m.dumps = forged`."""
        if isinstance(node.ctx, ast.Load) and id(node) not in self.may_be_module:
            for origin in self.names.origins(node):
                what = origins.no_value(origin)
                if what and (what == "module" or id(node) not in self.named):
                    raise Found(node, f"the {what} {origin} as a value")

    # names and attributes

    def visit_Name(self, node: ast.Name) -> None:
        if self.names.may_be_builtin(node.id):
            only_called = node.id in denylist.ONLY_CALLED and id(node) not in self.may_be_module
            if node.id in denylist.BUILTINS or (only_called and isinstance(node.ctx, ast.Load)):
                raise Found(node, node.id if node.id in denylist.BUILTINS else f"{node.id} as a value")
        self._value(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        head, parts = chain(node)
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Call) and self._is(node.value.func, "type"):
            raise Found(node, "assignment to an attribute of a type")
        for part, behind in zip(parts, [*parts[1:], ""], strict=True):
            if (part, behind) == ("__class__", "__name__") and isinstance(node.ctx, ast.Load):
                continue  # a text, whatever is done with it
            self._attribute(node, part)
        if not isinstance(node.ctx, ast.Load) and parts[0] in denylist.OF_KERNELS and self._is_kernel(head):
            raise Found(node, f"assignment to .{parts[0]} of a kernel")
        for origin in self.names.origins(node):
            self._dotted(node, origin)
            self._frozen(node, origin)
        self._value(node)
        if not isinstance(head, ast.Name):
            self.visit(head)
        elif not self.names.origins(head):
            self.visit_Name(head)

    def _is_kernel(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and self.kernels.named(node.id) and self.names.is_of_module(node.id)

    def _attribute(self, node: ast.AST, name: str) -> None:
        if name in denylist.ATTRIBUTES or (self.in_kernel and name in denylist.OF_BLOCKS):
            raise Found(node, f".{name}")

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        """`case Point(x=0)` reads `.x`. Which attribute `case Point(0)` reads is told by a string."""
        name = node.cls.id if isinstance(node.cls, ast.Name) and self.names.is_unbound(node.cls.id) else None
        if node.patterns and (name not in denylist.MATCHED_WHOLE or len(node.patterns) > 1):
            raise Found(node, "a class pattern without names of attributes")
        for attribute in node.kwd_attrs:
            self._attribute(node, attribute)
        self.named.add(id(node.cls))
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        for origin in self.names.origins(node.value):
            self._frozen(node, origin)
            if home_of(origin)[0] in ("typing", "typing_extensions") and id(node) not in self.named:
                self._annotation(node.slice)  # it makes a reference of a string, which somebody may evaluate
        self.generic_visit(node)

    def _frozen(self, node: ast.Attribute | ast.Subscript, full: str) -> None:
        stored = isinstance(node.ctx, (ast.Store, ast.Del))
        if stored and full.partition(".")[0] in denylist.FROZEN and not full.startswith(denylist.SETTABLE):
            raise Found(node, f"assignment to {full}")

    def visit_Expr(self, node: ast.Expr) -> None:
        """A string that is a statement is read by people alone."""
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and node.value in denylist.ATTRIBUTES - denylist.PLAIN_WORDS:
            raise Found(node, f"the name {node.value}")

    # calls

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) and self.names.may_be_builtin(node.func.id) else None
        if name in ("getattr", "setattr"):
            self._reflection(node, name)
        elif name == "type" and (len(node.args) != 1 or node.keywords):
            raise Found(node, "type() with several arguments")
        if name and self.names.is_unbound(name):
            shown = node.args[: _HARMLESS.get(name, 0)]
            shown += [part for argument in shown if isinstance(argument, ast.Tuple) for part in argument.elts]
            self.may_be_module.update(map(id, shown))
        self._named_call(node)
        if any(origin.startswith("torch.library.") for origin in self.names.origins(node.func)):
            self._library(node)
        if name not in denylist.ONLY_CALLED:
            self.visit(node.func)
        for argument in (*node.args, *node.keywords):
            self.visit(argument)

    def _named_call(self, node: ast.Call) -> None:
        """Functions that may be called in one way only."""
        homes = {".".join(home_of(origin)) for origin in self.names.origins(node.func)}
        single = len(node.args) == 1 and not isinstance(node.args[0], ast.Starred) and not node.keywords
        if homes & denylist.ONE_ARGUMENT and not single:
            raise Found(node, "wraps with several arguments")
        for home in homes & denylist.ONLY_WITH.keys():
            if node.args or {keyword.arg for keyword in node.keywords} - denylist.ONLY_WITH[home]:
                raise Found(node, f"{home} with other arguments than {', '.join(sorted(denylist.ONLY_WITH[home]))}")
        if not homes & denylist.ONLY_ENTERED or id(node) in self.named:
            self.named.add(id(node.func))
        if isinstance(node.func, ast.Attribute) and node.func.attr in denylist.PARSERS:
            given = {keyword.arg for keyword in node.keywords} - {"args"}
            if given or len(node.args) > 1 or any(isinstance(argument, ast.Starred) for argument in node.args):
                raise Found(node, f"{node.func.attr} with an object whose attributes it sets")

    def visit_With(self, node: ast.With) -> None:
        self.named.update(id(item.context_expr) for item in node.items)
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg in denylist.SPELLED or node.arg == "with_keyset":
            raise Found(node.value, f"the argument {node.arg}")
        self.generic_visit(node)

    def _library(self, node: ast.Call) -> None:
        """Operators of PyTorch's own may be used and not be replaced."""
        for part in node.args[:1] or [keyword.value for keyword in node.keywords if keyword.arg in _OPERATOR]:
            text = part.value if isinstance(part, ast.Constant) else None
            if isinstance(text, str) and text.partition("::")[0] in own_namespaces():
                raise Found(node, f"an operator of PyTorch's own, {text}")

    def _is(self, node: ast.AST, name: str) -> bool:
        return isinstance(node, ast.Name) and node.id == name and self.names.may_be_builtin(name)

    def _reflection(self, node: ast.Call, name: str) -> None:
        """A literal name is checked like the attribute that it names, and so is each of a loop's literal names.

        `f"layer{i}"` is allowed on own objects, where no forbidden attribute starts so; see computed_names.
        """
        if len(node.args) < 2 or any(isinstance(argument, ast.Starred) for argument in node.args):
            raise Found(node, f"{name} with a computed name")
        target, attribute = node.args[:2]
        texts = self.loop_names.of(attribute)
        for text in texts:
            context = ast.Store() if name == "setattr" else ast.Load()
            self.visit_Attribute(ast.copy_location(ast.Attribute(target, text, context), node))
        if texts:
            return
        of_class = isinstance(target, ast.Call) and self._is(target.func, "type")
        if self.names.origins(target) or of_class or not is_harmless(attribute, self.loop_names):
            advice = "a literal, an f-string that starts or ends with text, or add_module"
            raise Found(node, f"{name} with a computed name (instead: {advice})")

    # definitions

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for base in node.bases:
            self.named.add(id(base))
            self._base(node, base)
        for keyword in node.keywords:
            abstract = keyword.arg == "metaclass" and self.names.origins(keyword.value) == {"abc.ABCMeta"}
            if keyword.arg in ("metaclass", None) and not abstract:
                raise Found(node, "a metaclass")
        refused = denylist.METHODS | (denylist.MODULE_METHODS if self._is_module(node) else set())
        for member in node.body:
            for name in {name for inner in ast.walk(member) for name in bound_by(inner)}:
                if name in refused and name in _bound_in_class(member):
                    raise Found(member, f"the definition of {name}")
        self._each([*node.decorator_list, *node.bases, *node.keywords])
        self._inside(node, node.body)

    def _base(self, node: ast.ClassDef, base: ast.expr) -> None:
        """Classes derive from classes of the source, built-in ones and those of listed modules."""
        named = base.value if isinstance(base, ast.Subscript) else base
        known_as = self.names.origins(named)
        if known_as & denylist.TENSORS:
            raise Found(node, f"the Tensor subclass {node.name}")
        if known_as:
            known = all(any(origin.startswith(f"{base}.") for base in denylist.BASES) for origin in known_as)
        elif isinstance(named, ast.Name):
            known = self.names.class_of(named.id) is not None or self._is_builtin_class(named.id)
        else:
            known = False
        if not known:
            raise Found(node, f"the base class `{ast.unparse(base)[:60]}`")

    def _is_builtin_class(self, name: str) -> bool:
        return name != "type" and isinstance(getattr(builtins, name, None), type) and self.names.may_be_builtin(name)

    def _is_module(self, node: ast.ClassDef, depth: int = 0) -> bool:
        """Whether a class derives from one of torch's, itself or by others of the source."""
        for base in node.bases:
            if any(origin.startswith("torch.nn") for origin in self.names.origins(base)):
                return True
            inner = self.names.class_of(base.id) if isinstance(base, ast.Name) else None
            if inner and inner is not node and depth < _MAX_DEPTH and self._is_module(inner, depth + 1):
                return True
        return False

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        raise Found(node, "an async function")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._each(node.decorator_list)
        self._arguments(node.args)
        self._annotation(node.returns)
        outer, self.in_kernel = self.in_kernel, self.in_kernel or self.kernels.has(node, self.names)
        self._inside(node, node.body)
        self.in_kernel = outer

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._arguments(node.args)
        self._inside(node, [node.body])

    def _arguments(self, arguments: ast.arguments) -> None:
        """Defaults belong to the scope around the function."""
        self._each([*arguments.defaults, *filter(None, arguments.kw_defaults)])
        for argument in ast.walk(arguments):
            if isinstance(argument, ast.arg):
                self._annotation(argument.annotation)

    def _comprehension(self, node: Any) -> None:
        """The first iterable belongs to the scope around the comprehension."""
        first = node.generators[0].iter
        self.visit(first)
        parts = [part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.comprehension)]
        loops = [part for loop in node.generators for part in ast.iter_child_nodes(loop) if part is not first]
        self._inside(node, [*loops, *parts])

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def _inside(self, scope: ast.AST, nodes: Iterable[ast.AST]) -> None:
        self.names.enter(scope)
        self._each(nodes)
        self.names.leave()

    def _each(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    # annotations

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._annotation(node.annotation)
        self._each(filter(None, [node.target, node.value]))

    def _annotation(self, node: ast.expr | None) -> None:
        """Libraries evaluate annotations, and strings in them, among names of their own."""
        if node is None:
            return
        if not self.types.are(node):
            raise Found(node, "an annotation that may be any string")
        for part in ast.walk(node):
            if isinstance(part, _NO_ANNOTATION):
                raise Found(node, "an annotation that computes")
            self.named.add(id(part))
            if isinstance(part, ast.Name) and part.id == "type":
                self.may_be_module.add(id(part))
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                with contextlib.suppress(SyntaxError):
                    inner = ast.parse(part.value.strip(), mode="eval").body
                    for new in ast.walk(inner):
                        ast.copy_location(new, node)
                    self._annotation(inner)
        self.visit(node)


def _bound_in_class(member: ast.stmt) -> set[str]:
    """The names that a statement of a class body binds there: those of inner functions and classes are not."""
    if isinstance(member, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        return {member.name}
    return {name for node in ast.walk(member) for name in bound_by(node)}


def _namespaces(tree: ast.Module) -> frozenset[str]:
    """The namespaces of torch.ops that a source may use: of what it defines, by names that are written out."""
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return frozenset(text.partition("::")[0] for text in texts) - own_namespaces() | denylist.BACKEND_OPERATORS
