from timestone_bench.compare_rows import SIZES, measure


def test_each_row_has_its_processor_time() -> None:
    found = measure(SIZES[-1])
    assert list(found) == [*(f"append {size}" for size in SIZES), "read", "record"]
    assert all(microseconds >= 0 for microseconds in found.values())
