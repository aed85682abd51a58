import signal

import pytest

SECONDS = 120


@pytest.fixture(autouse=True)
def _no_hang(request):
    """End a test that hangs, by name."""

    def stop(number, frame):
        raise TimeoutError(f"{request.node.name} took more than {SECONDS} seconds.")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
