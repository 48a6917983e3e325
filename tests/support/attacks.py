"""Names and payloads of attackers: markup, attributes, addresses, templates, formulas, shells, and characters that hide
or turn text. Each script among them would set `window.tripped`. They are in `attacks.json`."""

import json
from pathlib import Path

ATTACKS: tuple[str, ...] = tuple(json.loads(Path(__file__).with_suffix(".json").read_text("ascii")))
