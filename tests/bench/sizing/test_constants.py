from timestone_bench.sizing.constants import CHOSEN, MEASURED, PRICES, constants


def test_every_constant_is_above_zero_and_says_where_it_comes_from() -> None:
    for table in (MEASURED, CHOSEN, PRICES):
        for name, one in table.items():
            assert one.value > 0 and one.unit and one.source, name
    assert len(constants()) == len(MEASURED) + len(CHOSEN) + len(PRICES)
