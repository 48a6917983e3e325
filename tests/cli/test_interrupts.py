import os
import signal

import pytest

from timestone_cli.interrupts import Interrupts


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_asks_and_the_second_interrupts(number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        asked = [interrupts.requested]
        os.kill(os.getpid(), number)
        asked.append(interrupts.requested)
        assert asked == [False, True]
        assert interrupts.exit_code == code
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
