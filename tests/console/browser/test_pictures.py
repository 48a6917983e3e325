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
LOOKS = 20
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
        stored = STORED / f"{name}-{width}-{theme}.webp"
        difference, looks = MOST_DIFFERENCE + 1, 0
        while (
            difference > MOST_DIFFERENCE and looks < LOOKS
        ):  # until charts have their size and figures arrived
            look.page.wait_for_timeout(150)
            small = pictured(look.page, MADE / f"{stored.stem}.png")
            if STORE:
                STORED.mkdir(exist_ok=True)
                small.save(stored, quality=60)
            difference, looks = difference_of(small, stored), looks + 1
        if difference > MOST_DIFFERENCE:
            wrong.append(f"{MADE / stored.stem}.png differs from {stored.name} by {difference:.1f}")
    assert not wrong, "\n".join(wrong)


def pictured(page: Any, path: Path) -> Any:
    """Save what a page shows, and return a smaller picture of it."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.save(path)
    return picture.resize((picture.width // SCALE, picture.height // SCALE), Image.Resampling.BOX)


def difference_of(small: Any, stored: Path) -> float:
    """Return the difference of a picture from a stored one."""
    with Image.open(stored) as before:
        return blurred_difference(small, before.convert("RGB"))


def blurred_difference(one: Any, other: Any) -> float:
    """Return the mean difference of two pictures in blocks of 60 pixels of the page."""
    size = (max(1, one.width // 15), max(1, one.height // 15))
    left, right = (picture.resize(size, Image.Resampling.BOX).tobytes() for picture in (one, other))
    return float(sum(abs(a - b) for a, b in zip(left, right, strict=True)) / len(left))
