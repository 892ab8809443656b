"""Every refusal as people read it: class, code, problem, fix.

``words.txt`` lists what the source raises; ``{…}`` stands for what is filled in. After a change of
words, read the difference as a stranger would, and renew the file with
``python tests/golden/test_words.py``.
"""

import ast
from functools import cache
from pathlib import Path

from noisegate import errors
from noisegate.errors import NoisegateError

SOURCE = Path(errors.__file__).parent
WORDS = Path(__file__).parent / "words.txt"
CLASSES = {
    name: each
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, NoisegateError)
}


def constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Texts that a module names once and says in several refusals."""
    return {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Constant | ast.JoinedStr)
    }


def words(node: ast.AST, named: dict[str, ast.expr]) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(words(each, {}) for each in node.values)
    if isinstance(node, ast.IfExp):
        return f"{words(node.body, named)} | {words(node.orelse, named)}"
    if isinstance(node, ast.Name) and node.id in named:
        return words(named[node.id], {})
    return "{…}"


def refusals(file: Path) -> list[str]:
    tree = ast.parse(file.read_text())
    named, found = constants(tree), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            given = {each.arg: each.value for each in node.keywords}
            if node.func.id in CLASSES and "fix" in given:
                code = CLASSES[node.func.id].code
                code += f".{words(given['about'], named)}" if "about" in given else ""
                said = f"{code}: {words(node.args[0], named)} > {words(given['fix'], named)}"
                found.append(((node.lineno, node.col_offset), said))
    return [said for _, said in sorted(found)]


@cache
def listed() -> str:
    lines = []
    for file in sorted(SOURCE.rglob("*.py")):
        if said := refusals(file):
            lines += [f"# {file.relative_to(SOURCE).as_posix()}", *said, ""]
    return "\n".join(lines)


def test_what_refusals_say_is_what_was_read():
    assert WORDS.read_text() == listed(), "read it, then: python tests/golden/test_words.py"


def test_refusals_speak_plainly():
    """Whole sentences with a next step, without turns that are not English."""
    for said in listed().splitlines():
        if said and not said.startswith("#"):
            for turn in (" is no ", " are no ", " for nothing", "Such as ", "Use such as "):
                plain = said.replace("here is no ", "").replace("here are no ", "")
                assert turn not in plain, said


if __name__ == "__main__":
    WORDS.write_text(listed())
