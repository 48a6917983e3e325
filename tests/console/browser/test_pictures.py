"""Each page as a picture, at three widths in both themes, beside a stored one. Figures differ from run to run, so that
pictures are compared when they are blurred: a page without its styles, with a broken layout or in the wrong theme is
found, another number is not. TIMESTONE_PICTURES=1 stores new ones; look at each before it is committed."""

import io
import os
from pathlib import Path
from typing import Any

import pytest

from tests.console.browser.test_pages import PAGES, WITHOUT_A_PIPELINE
from tests.support.browser import Browsing, until

Image = pytest.importorskip("PIL.Image", reason="pillow comes with matplotlib")

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]

STORED = Path(__file__).parent / "pictures"
MADE = Path("build/pictures")
WIDTHS = (360, 768, 1440)
HEIGHT = 900
STORE = "TIMESTONE_PICTURES" in os.environ
SCALE = 4
"""Stored pictures are smaller by this."""
MOST_DIFFERENCE = 7.0
"""Mean difference of blurred pictures, of 255."""
PICTURED = PAGES | {"events": f"{PAGES['events']}&before=4"}
"""Events: only those of the server's first clients, however many other tests have brought."""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_page_looks_as_it_did(look: Browsing, name: str, theme: str) -> None:
    look.faults.allow(WITHOUT_A_PIPELINE)
    MADE.mkdir(parents=True, exist_ok=True)
    path = PICTURED[name]
    wrong = []
    look.open(f"{path}{'&' if '?' in path else '?'}theme={theme}")
    until(look.page, "[...document.querySelectorAll('.plot')].every((one) => one.querySelector('canvas'))")
    for width in WIDTHS:
        look.page.set_viewport_size({"width": width, "height": HEIGHT})
        look.page.wait_for_timeout(150)
        picture = Image.open(io.BytesIO(look.page.screenshot())).convert("RGB")
        picture.save(MADE / f"{name}-{width}-{theme}.png")
        small = picture.resize((width // SCALE, HEIGHT // SCALE), Image.Resampling.BOX)
        stored = STORED / f"{name}-{width}-{theme}.webp"
        if STORE:
            STORED.mkdir(exist_ok=True)
            small.save(stored, quality=60)
            continue
        with Image.open(stored) as before:
            difference = blurred_difference(small, before.convert("RGB"))
        if difference > MOST_DIFFERENCE:
            wrong.append(f"{MADE / stored.stem}.png differs from {stored.name} by {difference:.1f}")
    assert not wrong, "\n".join(wrong)


def blurred_difference(one: Any, other: Any) -> float:
    """Return the mean difference of two pictures in blocks of 60 pixels of the page."""
    size = (max(1, one.width // 15), max(1, one.height // 15))
    left, right = (picture.resize(size, Image.Resampling.BOX).tobytes() for picture in (one, other))
    return float(sum(abs(a - b) for a, b in zip(left, right, strict=True)) / len(left))
