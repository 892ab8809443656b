"""A software bill of materials (CycloneDX 1.6) of the wheel: what it needs, and what it can use.

Versions are those of requirements.lock, names, licences and what needs what are of the installed
packages. Development tools are not in it: they are not installed with the wheel. `cyclonedx-py
environment` finds the same versions; it lists an environment, tools of development included, and
does not say which packages are optional.
"""

import platform
import re
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NAME = "noisegate-dp"
SPDX = {  # where a package says its licence in words only
    "Apache 2.0": "Apache-2.0", "Apache License 2.0": "Apache-2.0", "Apache-2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0", "Apache License, Version 2.0": "Apache-2.0",
    "BSD": "BSD-3-Clause", "BSD License": "BSD-3-Clause", "BSD-3-Clause": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC", "MIT": "MIT", "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0", "MPL-2.0": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0", "3-Clause BSD License": "BSD-3-Clause",
}  # fmt: skip


def bom(root: Path, wheel: Path, epoch: int) -> dict[str, Any]:
    """The whole document; the same for the same wheel and lock."""
    locked = _locked(root / "requirements.lock")
    ours = distribution(NAME)
    needed, asked = _closure(ours, set()), _closure(ours, {"all"})
    digest = sha256(wheel.read_bytes()).hexdigest()
    top = f"pkg:pypi/{NAME}@{ours.version}"
    components = [
        _component(distribution(name), locked, required=name in needed) for name in sorted(asked)
    ]
    refs = {each["name"]: each["bom-ref"] for each in components}
    graph = [{"ref": top, "dependsOn": sorted(refs[name] for name in _direct(ours, {"all"}))}]
    graph += [
        {"ref": refs[name], "dependsOn": sorted(refs[each] for each in below if each in refs)}
        for name, below in sorted(asked.items())
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, f'{top}#{digest}')}",
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": top,
                "name": NAME,
                "version": ours.version,
                "purl": top,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "hashes": [{"alg": "SHA-256", "content": digest}],
            },
            "properties": [
                {"name": "noisegate:lock", "value": "requirements.lock"},
                {"name": "noisegate:python", "value": platform.python_version()},
                {"name": "noisegate:system", "value": platform.system()},
            ],
        },
        "components": components,
        "dependencies": graph,
    }


def _locked(file: Path) -> dict[str, set[str]]:
    """The versions that the lock allows, by package: several where Pythons differ."""
    found: dict[str, set[str]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        name, _, rest = line.partition("==")
        found.setdefault(canonicalize_name(name), set()).add(rest.partition(";")[0].strip())
    return found


def _direct(package: Distribution, extras: set[str]) -> set[str]:
    """What a package requires here, with some of its extras; its own extras are followed."""
    found: set[str] = set()
    for text in package.requires or ():
        need = Requirement(text)
        if need.marker and not any(need.marker.evaluate({"extra": e}) for e in (extras or {""})):
            continue
        if canonicalize_name(need.name) == canonicalize_name(package.name):
            found |= _direct(package, set(need.extras))
        else:
            found.add(canonicalize_name(need.name))
    return found


def _closure(package: Distribution, extras: set[str]) -> dict[str, set[str]]:
    """All packages below, and what each of them requires."""
    wanted = {
        canonicalize_name(r.name): set(r.extras) for r in map(Requirement, package.requires or ())
    }
    found: dict[str, set[str]] = {}
    left = sorted(_direct(package, extras))
    while left:
        name = left.pop()
        if name not in found:
            found[name] = _direct(distribution(name), {"", *wanted.get(name, ())})
            left += sorted(found[name])
    return found


def _component(
    package: Distribution, locked: dict[str, set[str]], *, required: bool
) -> dict[str, Any]:
    name, version = canonicalize_name(package.name), package.version
    if version not in locked.get(name, ()):
        raise SystemExit(f"{name} {version} is not of requirements.lock: remove .venv, then make.")
    purl = f"pkg:pypi/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "scope": "required" if required else "optional",
        "licenses": _licences(package),
    }


def _licences(package: Distribution) -> list[dict[str, Any]]:
    """By the package's own expression; else by its words or classifiers."""
    said = package.metadata
    if expression := said.get("License-Expression"):
        return [{"expression": expression}]
    words = (said.get("License") or "").strip()
    listed = [each.rpartition(" :: ")[2] for each in said.get_all("Classifier") or ()
              if each.startswith("License ::")]  # fmt: skip
    named = listed or ([words.splitlines()[0]] if words else ["not stated"])
    found = [SPDX.get(each) or SPDX.get(words) for each in named]
    return [
        {"license": {"id": spdx} if spdx else {"name": re.sub(r"\s+", " ", each)}}
        for spdx, each in dict(zip(found, named, strict=True)).items()
    ]
