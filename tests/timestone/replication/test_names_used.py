import numpy as np

from timestone.kernel.entries import NO_TOPIC
from timestone.replication.names_used import names_of


def test_number_of_names_is_one_more_than_the_highest_topic_id() -> None:
    assert [names_of(one) for one in (NO_TOPIC, 0, 6)] == [0, 1, 7]
    assert names_of(np.array([3, NO_TOPIC, 5, 1], dtype=np.uint32)) == 6
    assert names_of(np.array([NO_TOPIC], dtype=np.uint32)) == 0
