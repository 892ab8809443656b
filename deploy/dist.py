"""Build what is handed to others: wheel, sdist, SBOM, release notes, checksums; signed if asked.

    python deploy/dist.py                            into dist/
    python deploy/dist.py --key project.key          also SHA256SUMS.sig, by an Ed25519 key
    python deploy/dist.py --verify --key-file K.pub  whether files are those that were signed

Claim: the same commit gives the same bytes. Times in the files are those of the commit
(``SOURCE_DATE_EPOCH`` overrides them), names are sorted, and nothing is drawn at random.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path

from sbom import bom

from noisegate.errors import NoisegateError
from noisegate.ledger.signing import Signer, fingerprint, holds, read_public

ROOT = Path(__file__).resolve().parents[1]
SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"


def build(to: Path, *, key: Path | None = None) -> list[Path]:
    """All files, in a folder that holds nothing else."""
    signer = None if key is None else Signer.load(key)
    if signer is not None and _git("status", "--porcelain"):
        raise SystemExit("Only what is committed is signed: commit or put away your changes.")
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct") or "315532800"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    to.mkdir(parents=True, exist_ok=True)
    for former in (*to.glob("noisegate_dp-*"), *to.glob(f"{SUMS}*")):
        former.unlink()
    if others := sorted(file.name for file in to.iterdir()):
        raise SystemExit(f"{to.name} holds other files, which would be signed too: {others[0]}.")
    tool = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel"]
    environment = os.environ | {"SOURCE_DATE_EPOCH": epoch}
    subprocess.run(
        [*tool, "-d", str(to.resolve())], cwd=ROOT, env=environment, check=True, capture_output=True
    )
    (wheel,) = to.glob("*.whl")
    stem = wheel.name.partition("-py3")[0]
    stated = bom(ROOT, wheel, int(epoch))
    text = json.dumps(stated, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    (to / f"{stem}.cdx.json").write_text(text, encoding="utf-8")
    (to / f"{stem}.md").write_text(notes(version), encoding="utf-8")
    lines = [f"{sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in _files(to)]
    (to / SUMS).write_text("".join(lines), encoding="utf-8")
    if signer is not None:
        signed = signer.sign((to / SUMS).read_bytes())
        (to / SIGNATURE).write_text(signed + "\n", encoding="utf-8")
    return sorted(to.iterdir())


def notes(version: str) -> str:
    """The section of the changelog."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(version)}\b.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit(f"CHANGELOG.md has no section {version}.")
    return f"# noisegate {found[0].removeprefix('## ').rstrip()}\n"


def verify(folder: Path, public: str) -> list[str]:
    """What is wrong: a signature of another key, a file that was changed, left out or added."""
    sums, signature = folder / SUMS, folder / SIGNATURE
    if not sums.is_file() or not signature.is_file():
        return [f"there is no {SUMS} with {SIGNATURE}"]
    if not holds(public, signature.read_text(encoding="utf-8").strip(), sums.read_bytes()):
        return [f"{SUMS} is not signed by this key, or was changed since"]
    stated = dict(line.split("  ")[::-1] for line in sums.read_text(encoding="utf-8").splitlines())
    there = {file.name: sha256(file.read_bytes()).hexdigest() for file in _files(folder)}
    return [
        f"{name} is {'missing' if name not in there else 'not what was signed'}"
        for name in sorted(stated.keys() | there.keys())
        if there.get(name) != stated.get(name)
    ]


def _files(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.iterdir()) if file.name not in {SUMS, SIGNATURE}]


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main() -> None:
    """Build, or verify."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="the folder")
    parser.add_argument("--key", type=Path, help="an Ed25519 key: noisegate key new FILE")
    parser.add_argument("--verify", action="store_true", help="build nothing")
    parser.add_argument("--key-file", type=Path, help="the public key to verify by")
    said = parser.parse_args()
    try:
        if not said.verify:
            for file in build(said.to, key=said.key):
                sys.stdout.write(f"{file.stat().st_size:>12,}  {file.name}\n")
            return
        if said.key_file is None:
            raise SystemExit("Give --key-file: the project's public key, from another place.")
        public = read_public(said.key_file.read_text(encoding="utf-8"))
    except NoisegateError as error:
        raise SystemExit(str(error)) from None
    if wrong := verify(said.to, public):
        raise SystemExit("\n".join(wrong))
    sys.stdout.write(f"ok: all files are those that {fingerprint(public)} signed\n")


if __name__ == "__main__":
    main()
