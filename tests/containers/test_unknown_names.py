import pickle

import pytest

import az_cv
from az_cv.containers.unknown_names import UnknownNameError


def test_the_message_prints_as_it_is_written():
    data = az_cv.load_eight_schools()
    with pytest.raises(KeyError) as caught:
        az_cv.summary(data, var_names=["mu", "thta"])
    expected = (
        "var_names 'thta' is not among the variables: ['mu', 'tau', 'theta']. Did you mean 'theta'?"
    )
    assert str(caught.value) == expected
    assert str(pickle.loads(pickle.dumps(caught.value))) == expected
    assert str(UnknownNameError("one line\nanother")) == "one line\nanother"


@pytest.mark.parametrize(
    ("wanted", "available", "end"),
    [
        (["thta"], ["mu", "theta"], " Did you mean 'theta'?"),
        (["MU"], ["mu", "theta"], " Did you mean 'mu'?"),
        (["thta", "sgma"], ["theta", "sigma"], " Did you mean 'theta' and 'sigma'?"),
        (["thta", "thet"], ["theta"], " Did you mean 'theta'?"),
        (["theta1", "thta2"], ["theta1", "theta2"], " Did you mean 'theta2'?"),
        (["alpha"], ["mu", "theta"], ""),
        ([17], ["17"], ""),
        (["1"], [1, 11], ""),
        ([], ["mu"], ""),
        (["mu"], [], ""),
    ],
)
def test_names_that_look_alike_are_suggested(wanted, available, end):
    assert str(UnknownNameError("There is none.", wanted, available)) == "There is none." + end


def test_many_unknown_names_among_many_take_no_time():
    available = [f"theta[{i}]" for i in range(20_000)]
    message = str(UnknownNameError("", [f"eta[{i}]" for i in range(20_000)], available))
    assert message.count(" and ") == 2
