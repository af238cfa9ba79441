"""The site builds without a warning, fetches nothing, and every link leads somewhere."""

import os
import re
import subprocess
import sys

import pytest
from snippets import PAGES, ROOT

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FETCHED = re.compile(r"<(?:link|script|img|iframe)\b[^>]*?(?:href|src)=\"?(https?:)?//[^>]*>")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", target],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return target


def test_site_is_complete_and_fetches_nothing(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= 17
    for page in pages:
        text = page.read_text()
        links = [m[0] for m in FETCHED.finditer(text) if 'rel="canonical"' not in m[0]]
        assert not links, (page.name, links)
        assert 'class="mermaid"' not in text, "it would be drawn by a script from elsewhere"


def test_nothing_internal_is_in_the_site(site):
    assert not list(site.rglob("generators")), "generators are no pages"
    assert not list(site.rglob("generate.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page):
    for target in LINK.findall(page.read_text()):
        if re.match(r"https?:|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), (page.name, target)
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), (page.name, target)


def anchors(page):
    """Ids of a page's headings, as the site makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", h).strip().lower()) for h in headings}
