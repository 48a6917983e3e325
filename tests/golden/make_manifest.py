"""Makes the golden manifest: `python -m tests.golden.make_manifest`, once for each version of the format."""

from tests.tiering.objects.test_manifest import GOLDEN, manifest

if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_bytes(manifest().encode())
