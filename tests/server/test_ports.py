"""Which port a server gets, and who is seen to listen on it."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import pairwise

import pytest

from autotune.errors import EnvironmentFault, UserError
from autotune.server.ports import FreePorts, PortRange, is_held_by, listeners


@pytest.fixture
def three() -> Iterator[PortRange]:
    """Three neighbouring ports that are free."""
    for low in range(20_000, 60_000, 3):
        with ExitStack() as taken:
            try:
                for port in range(low, low + 3):
                    taken.enter_context(closing(socket.socket())).bind(("127.0.0.1", port))
            except OSError:
                continue
        yield PortRange(low=low, high=low + 2)
        return


def leave_time_wait(port: int) -> None:
    """The side that closes first keeps the port in TIME_WAIT, for a minute on Linux."""
    with closing(socket.create_server(("127.0.0.1", port))) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        accepted.close()
        assert client.recv(1) == b""
        client.close()
    with closing(socket.socket()) as plain, pytest.raises(OSError, match="in use"):
        plain.bind(("127.0.0.1", port))


def test_the_kernels_choice_is_free_and_new() -> None:
    ports = FreePorts()
    taken = [ports.take() for _ in range(20)]
    assert all(a != b for a, b in pairwise(taken))
    for port in set(taken):
        socket.create_server(("127.0.0.1", port)).close()


def test_a_range_is_gone_round(three: PortRange) -> None:
    ports = FreePorts(three)
    low = three.low
    assert [ports.take() for _ in range(4)] == [low, low + 1, low + 2, low]


def test_a_port_in_use_is_passed_over(three: PortRange) -> None:
    ports = FreePorts(three)
    with closing(socket.create_server(("127.0.0.1", three.low + 1))):
        assert [ports.take() for _ in range(3)] == [three.low, three.low + 2, three.low]


def test_one_held_on_every_address_is_in_use(three: PortRange) -> None:
    with closing(socket.create_server(("0.0.0.0", three.low))):
        assert FreePorts(three).take() == three.low + 1
        assert is_held_by(three.low, {os.getpid()}) is True


def test_a_range_that_is_used_up(three: PortRange) -> None:
    only = PortRange(low=three.low, high=three.low)
    ports = FreePorts(only)
    with (
        closing(socket.create_server(("127.0.0.1", only.low))),
        pytest.raises(EnvironmentFault, match=rf"no port in the range {only.low}-{only.low} is free"),
    ):
        ports.take()


def test_a_range_of_one_port_serves_again_after_a_connection(three: PortRange) -> None:
    only = PortRange(low=three.low, high=three.low)
    ports = FreePorts(only)
    leave_time_wait(ports.take())
    assert ports.take() == only.low


def test_the_other_ports_come_before_the_last_one(three: PortRange) -> None:
    """Even a port with a closing connection is taken before the one used just now."""
    two = PortRange(low=three.low, high=three.low + 1)
    ports = FreePorts(two)
    leave_time_wait(two.low)
    assert [ports.take() for _ in range(5)] == [two.high, two.low, two.high, two.low, two.high]


@pytest.mark.parametrize(("low", "high"), [(0, 5), (5, 4), (1, 65536)])
def test_an_impossible_range(low: int, high: int) -> None:
    with pytest.raises(UserError, match=f"port range {low}-{high}: it must be"):
        PortRange(low=low, high=high)


def test_who_listens() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        with closing(socket.create_connection(("127.0.0.1", port))):
            assert listeners(port) == {os.getpid()}
            assert is_held_by(port, {os.getpid(), 1}) is True
            assert is_held_by(port, {1}) is False
    assert is_held_by(port, {1}) is None
