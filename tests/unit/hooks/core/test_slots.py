"""What a loss was lent is put back, as it was and where it was."""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from satwatch.hooks.core import slots
from satwatch.hooks.core.slots import lent


def test_values_are_there_meanwhile_and_put_back():
    loss = SimpleNamespace(low=0.2, high=0.3, other=1)
    with lent(loss, low=torch.tensor([0.1]), high=0.25):
        assert (loss.low.tolist(), loss.high, loss.other) == ([pytest.approx(0.1)], 0.25, 1)
    assert vars(loss) == {"low": 0.2, "high": 0.3, "other": 1}


def test_they_are_put_back_when_the_loss_raises():
    loss = SimpleNamespace(low=0.2)
    with pytest.raises(ZeroDivisionError), lent(loss, low=0.1):
        raise ZeroDivisionError
    assert loss.low == 0.2


def test_a_slot_that_is_not_there_is_an_error_before_anything_is_set():
    loss = SimpleNamespace(low=0.2)
    with pytest.raises(AttributeError, match="high"), lent(loss, low=0.1, high=0.1):
        pytest.fail("the block may not run")
    assert vars(loss) == {"low": 0.2}


def test_a_value_of_the_class_comes_from_the_class_again():
    class Loss:
        eps = 0.2

    loss = Loss()
    with lent(loss, eps=0.1):
        assert (loss.eps, Loss.eps) == (0.1, 0.2)
    assert vars(loss) == {}
    Loss.eps = 0.4
    assert loss.eps == 0.4


def test_a_value_of_an_object_behind_comes_from_there_again():
    class Wrapper:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

    inner = SimpleNamespace(eps=0.2)
    wrapper = Wrapper(inner)
    with lent(wrapper, eps=0.1):
        assert (wrapper.eps, inner.eps) == (0.1, 0.2)
    inner.eps = 0.5
    assert wrapper.eps == 0.5


def test_properties_slots_and_buffers_are_set_by_their_own_means():
    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("eps", torch.tensor(0.2))
            self.seen = []

        @property
        def low(self):
            return 0.2

        @low.setter
        def low(self, value):
            self.seen.append(value)

    @dataclass(slots=True)
    class Settings:
        eps: float = 0.2

    loss, settings = Loss(), Settings()
    with lent(loss, eps=torch.tensor([0.1, 0.3]), low=0.1), lent(settings, eps=0.1):
        assert loss.state_dict()["eps"].numel() == 2
        assert settings.eps == 0.1
    assert loss.state_dict()["eps"].item() == pytest.approx(0.2)
    assert "eps" not in vars(loss)
    assert loss.seen == [0.1, 0.2]
    assert settings.eps == 0.2


def test_what_cannot_be_set_is_an_error_and_the_others_are_put_back():
    class Loss:
        low = 0.2
        high = property(lambda self: 0.3)

    loss = Loss()
    with pytest.raises(AttributeError), lent(loss, low=0.1, high=0.1):
        pytest.fail("the block may not run")
    assert vars(loss) == {}


def test_one_that_cannot_be_put_back_does_not_keep_the_others_from_it():
    class Loss:
        def __init__(self):
            self.__dict__.update(first=1, second=2)
            self.frozen = False

        def __setattr__(self, name, value):
            if name == "second" and getattr(self, "frozen", False):
                raise RuntimeError("frozen")
            self.__dict__[name] = value

    loss = Loss()
    with pytest.raises(RuntimeError, match="frozen"), lent(loss, first=10, second=20):
        loss.frozen = True
    assert loss.first == 1


def test_a_module_and_a_class_may_lend():
    class Base:
        eps = 0.2

    class Loss(Base):
        pass

    with lent(Loss, eps=0.1):
        assert (Loss.eps, Base.eps) == (0.1, 0.2)
    assert "eps" not in vars(Loss)


def _interrupted_at(number, owner, **values):
    """Lend and put back, with an interrupt before the so-many-th line of the slots' own; return whether it came."""
    lines = itertools.count()

    def trace(frame, event, _):
        if frame.f_code.co_filename != slots.__file__:
            return None
        if event == "line" and next(lines) == number:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with lent(owner, **values):
            pass
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_between_any_two_lines_leaves_nothing_lent():
    class Loss:
        eps = 0.2

        def __init__(self):
            self.low, self.high = 0.1, 0.3

    for number in itertools.count():
        loss = Loss()
        came = _interrupted_at(number, loss, low=1.0, eps=2.0, high=3.0)
        assert (loss.low, loss.eps, loss.high) == (0.1, 0.2, 0.3), number
        if not came:
            break
    assert number > 20
