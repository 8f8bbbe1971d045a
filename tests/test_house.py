"""The rules of the house, read from the source: who may import whom, and what nobody does."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import partwise

SOURCE = Path(partwise.__file__).parent
# A lesson is no module: its cells are run one by one, in a namespace of their own.
LESSONS = SOURCE / "course" / "lessons"
# A lesson is no module: its cells are run one by one, in a namespace of their own.
OTHERS = {"node_modules", "lessons"}
FILES = sorted(path for path in SOURCE.rglob("*.py") if OTHERS.isdisjoint(path.parts))
NAMES = [path.relative_to(SOURCE).as_posix() for path in FILES]

# Floors of the house, the lowest first; a file may import from the floors below its own.
FLOORS = (
    {"messages"},
    {"errors"},
    {"settings"},
    {"storage"},
    {"machine"},
    {"reference"},
    {"model", "text"},
    {"training", "sampling", "interop"},
    {"run"},
    {"translation"},
    {"budget", "translation"},
    {"ladder"},
    {"course"},
    {"front", "bench"},
    {"studio"},
    {"cli"},
    {"__main__"},
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

# What a room does not know, although it is below.
STRANGERS = {
    "model": {"storage"},
    "reference": {"storage", "machine"},
}

# A model's shape is plain data, and the lessons' forward pass takes it as such.
EXCEPTIONS = {("reference.py", "partwise.model.config")}

PICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
SURROUNDINGS = re.compile(
    r"PARTWISE_\w+|LC_ALL|LC_MESSAGES|LANG|NO_COLOR|TERM|COLUMNS|GOMP_SPINCOUNT|OMP_WAIT_POLICY"
)


ASKING = {"os.environ", "os.environb", "os.getenv", "os.putenv"}


def room_of(name: str) -> str:
    return name.split("/")[0].removesuffix(".py")


def module_of(name: str) -> str:
    parts = ["partwise", *name.removesuffix(".py").split("/")]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.AST) -> Iterator[str]:
    """The modules of this package that a file imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("partwise"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("partwise"):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else str(node.module)


MODULES = {module_of(name) for name in NAMES}
TREES = {
    name: ast.parse(path.read_text(encoding="utf-8"))
    for name, path in zip(NAMES, FILES, strict=True)
}


def upward(name: str, tree: ast.AST) -> list[str]:
    """The imports of a file that do not point down."""
    room = room_of(name)
    if room == "__init__":
        # The package's front only names where things live; it loads none of them.
        return []
    found = []
    for module in imports_of(tree):
        if module == "partwise" or (name, module) in EXCEPTIONS:
            continue
        other = module.split(".")[1]
        allowed = other == room or (
            FLOOR[other] < FLOOR[room] and other not in STRANGERS.get(room, set())
        )
        if not allowed:
            found.append(module)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_imports_point_down(name: str) -> None:
    assert room_of(name) in FLOOR or room_of(name) == "__init__", "a room without a floor"
    assert upward(name, TREES[name]) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("model/gpt.py", "import partwise.text.prepare"),
        ("model/gpt.py", "def f():\n    from partwise.storage import lock"),
        ("text/char.py", "from partwise.model.config import ModelConfig"),
        ("training/loop.py", "from partwise.sampling.generate import generate"),
        ("storage/files.py", "from partwise import machine"),
        ("messages/__init__.py", "from partwise.errors import PartwiseError"),
        ("reference.py", "from partwise.model.gpt import GPT"),
        ("run/folder.py", "from partwise.cli import main"),
    ],
)
def test_an_import_that_points_up_is_found(name: str, source: str) -> None:
    assert upward(name, ast.parse(source))


def test_no_files_import_each_other() -> None:
    """Nor in a longer circle, also where an import waits inside a function."""
    graph = {
        module_of(name): set(imports_of(tree)) - {"partwise"}
        for name, tree in TREES.items()
        if name != "__init__.py"
    }
    done: set[str] = set()
    path: list[str] = []

    def visit(module: str) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module in done:
            return
        path.append(module)
        for other in sorted(graph.get(module, set()) - {module}):
            visit(other)
        path.pop()
        done.add(module)

    for module in sorted(graph):
        visit(module)


LIGHT = ["partwise", "partwise.settings", "partwise.errors", "partwise.messages"]
LIGHT += [module_of(name) for name in NAMES if name.endswith("/config.py")]
LIGHT += ["partwise.model.presets", "partwise.storage", "partwise.machine", "partwise.cli"]
HEAVY = ["torch", "numpy", "tokenizers", "safetensors", "rich", "matplotlib"]


def test_light_modules_load_nothing_heavy() -> None:
    program = (
        f"import sys, importlib\n"
        f"for module in {LIGHT!r}:\n"
        f"    importlib.import_module(module)\n"
        f"    heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        f"    assert not heavy, (module, heavy)\n"
        f"assert importlib.import_module('partwise').__version__\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


# --- What nobody does -----------------------------------------------------------------------------


def pickles(tree: ast.AST, name: str) -> Iterator[ast.AST]:
    """Nothing is unpickled, and nothing pickled for others to unpickle."""
    for node in ast.walk(tree):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
            if node.module == "torch":
                modules += [f"torch.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call):
            modules = [ast.unparse(node.func)]
        for module in modules:
            if module.split(".")[0] in PICKLERS or module in ("torch.load", "torch.save"):
                yield node
            if module in ("np.load", "numpy.load") and "allow_pickle" in ast.unparse(node):
                yield node


def executes(tree: ast.AST, name: str) -> Iterator[ast.AST]:
    """No text is run as a program."""
    for node in ast.walk(tree):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if called in ("exec", "eval", "compile", "__import__"):
            yield node


def prints(tree: ast.AST, name: str) -> Iterator[ast.AST]:
    """Only the command line speaks to the terminal."""
    if room_of(name) == "cli":
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "print" or re.match(r"sys\.(stdout|stderr)\b.*\bwrite", called):
                yield node


def globals_of(tree: ast.AST, name: str) -> Iterator[ast.AST]:
    """Nothing reads or writes a global that another part of the program changes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield node


def surroundings(tree: ast.AST, name: str) -> Iterator[ast.AST]:
    """The environment is asked by known names alone, so that the documentation can list them."""
    allowed: set[ast.AST] = set()
    for node in ast.walk(tree):
        key: ast.AST | None = None
        inner: ast.AST | None = None
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "os.environ.get":
            assert isinstance(node.func, ast.Attribute)
            key, inner = node.args[0], node.func.value
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
            key, inner = node.slice, node.value
        if isinstance(key, ast.Constant) and SURROUNDINGS.fullmatch(str(key.value)):
            allowed.add(inner)  # type: ignore[arg-type]
        # Handing everything on to a child process asks for nothing.
        if isinstance(node, ast.Dict):
            allowed.update(v for k, v in zip(node.keys, node.values, strict=True) if k is None)
        # A loop over the variables that hold the locale.
        if isinstance(key, ast.Name) and name == "messages/__init__.py":
            allowed.add(inner)  # type: ignore[arg-type]
    for node in ast.walk(tree):
        asks = isinstance(node, ast.Attribute) and ast.unparse(node) in ASKING
        if asks and node not in allowed:
            yield node


def unnamed_encoding(tree: ast.AST, name: str) -> Iterator[ast.AST]:
    """Text files are UTF-8 on every machine, said at each place that opens one."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        named = {keyword.arg for keyword in node.keywords}
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
        modes = [m for m in texts if isinstance(m, str) and re.fullmatch(r"[rwxa+bt]{1,3}", m)]
        opens = called == "open" and (bool(modes) or isinstance(node.func, ast.Name))
        text = opens and not any("b" in mode for mode in modes)
        method = isinstance(node.func, ast.Attribute)
        text = text or (method and called in ("read_text", "write_text", "TextIOWrapper"))
        text = text or any(
            k.arg == "text" and ast.unparse(k.value) == "True" for k in node.keywords
        )
        if text and "encoding" not in named:
            yield node


def relative(tree: ast.AST, name: str) -> Iterator[ast.AST]:
    """An import says where it comes from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.level or node.names[0].name == "*"):
            yield node


Rule = Callable[[ast.AST, str], Iterator[ast.AST]]
RULES: list[tuple[Rule, str]] = [
    (pickles, "import pickle"),
    (pickles, "from torch import load"),
    (pickles, "torch.load(path)"),
    (pickles, "np.load(path, allow_pickle=True)"),
    (executes, "exec(text)"),
    (executes, "eval(text)"),
    (prints, "print(1)"),
    (prints, "sys.stderr.write('x')"),
    (globals_of, "def f():\n    global x"),
    (surroundings, "os.environ.get('HOME')"),
    (surroundings, "os.getenv('PARTWISE_CACHE')"),
    (surroundings, "os.environ[name]"),
    (surroundings, "dict(os.environ)"),
    (unnamed_encoding, "path.read_text()"),
    (unnamed_encoding, "open(path)"),
    (unnamed_encoding, "path.open('w')"),
    (unnamed_encoding, "subprocess.run(x, text=True)"),
    (relative, "from .config import x"),
    (relative, "from os import *"),
]


@pytest.mark.parametrize("rule", dict.fromkeys(rule for rule, _ in RULES))
def test_what_nobody_does(rule: Rule) -> None:
    found = [
        f"{name}:{node.lineno}: {ast.unparse(node)}"  # type: ignore[attr-defined]
        for name, tree in TREES.items()
        for node in rule(tree, name)
    ]
    assert not found, "\n".join([str(rule.__doc__), *found])


@pytest.mark.parametrize(("rule", "source"), RULES)
def test_each_rule_finds_what_it_forbids(rule: Rule, source: str) -> None:
    assert list(rule(ast.parse(source), "model/x.py"))


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (surroundings, "os.environ.get('PARTWISE_CACHE')"),
        (unnamed_encoding, "path.read_text(encoding='utf-8')"),
        (unnamed_encoding, "path.open('rb')"),
        (unnamed_encoding, "Run.open(path)"),
        (surroundings, "run(env={**os.environ, 'A': '1'})"),
        (pickles, "safetensors.torch.load(data)"),
        (executes, "re.compile('x'), torch.compile(f), model.eval()"),
    ],
)
def test_the_rules_forbid_nothing_else(rule: Rule, source: str) -> None:
    assert not list(rule(ast.parse(source), "model/x.py"))


def test_there_is_no_drawer_for_everything() -> None:
    names = {path.stem for path in FILES}
    assert not names & {"utils", "util", "helpers", "common_utils", "misc"}
