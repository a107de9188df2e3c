"""The workflow's report, opened in a real headless browser: the published study, which needs no model."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell")


def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser on PATH ({', '.join(BROWSERS)}); Debian: apt-get install chromium")
    return found


def snakemake(outdir: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--configfile", "config/reported.yaml", "--nolock"]
    done = subprocess.run(
        [*command, "--config", f"outdir={outdir}", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]


def page_in_browser(browser_path: str, page: Path, profile: Path, *arguments: str) -> str:
    """The document after its scripts ran."""
    command = [
        *(browser_path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *(f"--user-data-dir={profile}", "--virtual-time-budget=10000", "--window-size=1280,900", *arguments),
    ]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.study
def test_the_report_opens_in_a_browser(tmp_path: Path) -> None:
    path = browser()
    outdir = tmp_path / "reported"
    snakemake(outdir)
    report = tmp_path / "report.html"
    snakemake(outdir, "--report", str(report))
    raw = report.read_text(encoding="utf-8")
    for caption in ("Tango's score interval", "Pairs of outcomes by difficulty", "The tables of the card"):
        assert caption in html.unescape(raw), caption
    shown = page_in_browser(path, report, tmp_path / "profile", "--dump-dom")
    text = html.unescape(re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", shown, flags=re.S))
    for heading in ("Workflow", "Statistics", "About", "pi", "opencode"):
        assert heading in text, heading
    assert "Base model and adapter under the same coding agent" in text
    page_in_browser(path, report, tmp_path / "profile", f"--screenshot={tmp_path / 'report.png'}")
    assert (tmp_path / "report.png").stat().st_size > 20_000
    tables = page_in_browser(path, outdir / "card_pi/results.html", tmp_path / "profile", "--dump-dom")
    assert tables.count("<table") == 2
    assert "+3.4 ± 5.8" in tables
