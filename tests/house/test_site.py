"""The site has every page, links that lead somewhere, and examples that run."""

import re
import subprocess
import sys

import pytest
from test_documents import ROOT, blocks, folder  # noqa: F401 - a fixture


def test_every_page_is_on_the_site_and_every_link_leads_somewhere(tmp_path):
    program = [sys.executable, str(ROOT / "docs" / "site.py"), "--check", "--to", str(tmp_path)]
    subprocess.run(program, check=True)
    pages = {page.name: page.read_text() for page in (tmp_path / "pages").glob("*.md")}
    assert {"index.md", "start.md", "security.md", "noisegate.noise.bits.md"} <= pages.keys()
    listed = set(re.findall(r'= "([^"]+\.md)"', (tmp_path / "zensical.toml").read_text()))
    assert listed == pages.keys()
    for name, text in pages.items():
        links = re.findall(r"(?<!!)\[[^\]]+\]\(([^)#\s]+\.md)", text)
        assert [link for link in links if link not in pages] == [], name
        assert text.count("```") % 2 == 0, name
        for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
            assert (tmp_path / "pages" / picture).is_file(), (name, picture)


def test_a_claim_is_a_paragraph_and_an_example_a_block(tmp_path):
    program = [sys.executable, str(ROOT / "docs" / "site.py"), "--check", "--to", str(tmp_path)]
    subprocess.run(program, check=True)
    text = (tmp_path / "pages" / "noisegate.mechanisms.additive.geometric.md").read_text()
    assert "\n\nAdjacency: " in text or "\n\nWhy: " in text
    assert "```text\n>>> " in text


@pytest.mark.parametrize("place", [0, 1])
def test_the_python_of_the_first_page_runs(folder, place, capsys):  # noqa: F811 - a fixture
    exec(blocks("docs/start.md", "python")[place], {})
    assert ("north" if place == 0 else "zcdp 11.69") in capsys.readouterr().out
