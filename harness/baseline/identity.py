"""What names a test, the same from run to run and from machine to machine.

A test's id is `file::Class::name[parameters]`, as pytest writes it, when the file is known. JUnit gives a dotted class
name in place of the file, which joins `v1.2/test_d.py` and `v1/2/test_d.py`; such an id reads
`package.module.Class::name`.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

MOST_CHARACTERS = 400
_KEPT_CHARACTERS = 300

# What pytest's own JUnit writer escapes, in the same way: what XML cannot hold, and DEL.
_NOT_XML = re.compile("[^\t\n\r -~\x80-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BLANKS = re.compile("[\t\n\r\x85\u2028\u2029]")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{4,16}\b")
_GROUP = re.compile(r"(\w+(?:\[.*\])?)@[^\[\]@]+", re.DOTALL)


def normal(text: str) -> str:
    """One line that XML can hold, without memory addresses; a long text keeps its beginning and a digest.

    An attribute's newline reads back from XML as a space, so it is one here too.
    """
    if not (text.isascii() and text.isprintable()):
        text = _BLANKS.sub(" ", printable(text))
    if " at 0x" in text:
        text = _ADDRESS.sub(" at 0x...", text)
    if len(text) > MOST_CHARACTERS:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{text[:_KEPT_CHARACTERS]}...{digest}"
    return text


def printable(text: str) -> str:
    """The text with whatever XML cannot hold, such as lone surrogates, written as `#x1B`, as pytest's JUnit has it."""
    return _NOT_XML.sub(_escaped, text)


def identity_of(name: str, *, classname: str, file: str | None) -> str:
    """The id of a test as JUnit describes it; file is None where the writer left it out."""
    if "@" in name and file is not None and file.endswith(".py"):
        name = without_group(name)
    text = _place(classname, file) + name
    plain = text.isascii() and text.isprintable() and len(text) <= MOST_CHARACTERS and " at 0x" not in text
    return text if plain else normal(text)


@lru_cache(maxsize=65536)
def _place(classname: str, file: str | None) -> str:
    """All of an id that stands in front of the name."""
    if file is None:
        return f"{classname}::" if classname else ""
    chain = class_chain(classname, file=file)
    if chain is None:
        # A test inherited from a class of another file: its file is where the code stands, its class where it ran.
        return f"{file}::{classname}::"
    return "::".join((file, *chain, ""))


def class_chain(classname: str, *, file: str) -> tuple[str, ...] | None:
    """The classes inside the file; None if the class name does not speak of this file.

    The dotted file and the class name may begin at different folders, as they do when pytest's root is another.
    """
    module, parts = dotted(file).split("."), classname.split(".") if classname else []
    for end in range(len(parts), 0, -1):
        shared = 0
        while shared < min(end, len(module)) and parts[end - 1 - shared] == module[-1 - shared]:
            shared += 1
        if shared and shared in (end, len(module)):  # one of the two is wholly inside the other
            return tuple(parts[end:])
    return None


def dotted(file: str) -> str:
    """A file as a module: `a/b.py` is `a.b`."""
    return file.removesuffix(".py").replace("\\", "/").strip("/").replace("/", ".")


def without_group(name: str) -> str:
    """A name without the `@group` that xdist may append to it."""
    found = _GROUP.fullmatch(name)
    return name if found is None else found[1]


def split_node_id(nodeid: str) -> tuple[str, str]:
    """A pytest node id as JUnit's (classname, name)."""
    base, bracket, parameters = nodeid.partition("[")
    path, *names = base.split("::")
    if not names:
        return "", dotted(path) + bracket + parameters
    return ".".join((dotted(path), *names[:-1])), names[-1] + bracket + parameters


def class_id(identity: str) -> str:
    """An id without its file: `package.module.Class::name`, the most that JUnit without files can say."""
    base, bracket, parameters = identity.partition("[")
    parts = base.split("::")
    if len(parts) < 2 or not parts[0].endswith(".py"):
        return identity
    owner, name = parts[1:-1], parts[-1]
    inherited = any("." in part for part in owner)
    classname = ".".join(owner if inherited else (dotted(parts[0]), *owner))
    return f"{classname}::{name}{bracket}{parameters}"


def node_id(identity: str) -> str | None:
    """What pytest takes to run the test again; None for a test that is not pytest's, or whose id was shortened."""
    base, bracket, parameters = identity.partition("[")
    if len(identity) > _KEPT_CHARACTERS or " at 0x..." in identity:
        return _function_of(base)
    parts = base.split("::")
    if parts[0].endswith(".py") and not any("." in part for part in parts[1:]):
        return identity
    function = _function_of(base)
    return None if function is None else function + bracket + parameters


def _function_of(base: str) -> str | None:
    """The node of an id without parameters; folders and classes are told apart by pytest's habit of `TestName`."""
    parts = base.split("::")
    if parts[0].endswith(".py") and not any("." in part for part in parts[1:]):
        return base
    if len(parts) < 2:
        return None
    words = parts[-2].split(".")
    classes = next((i for i, word in enumerate(words) if word[:1].isupper()), len(words))
    module = words[classes - 1] if classes else ""
    if not (module.startswith("test_") or module.endswith("_test")):
        return None
    return "::".join(("/".join(words[:classes]) + ".py", *words[classes:], parts[-1]))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"#x{code:02X}" if code <= 0xFF else f"#x{code:04X}"
