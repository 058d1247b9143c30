"""Unit tests touch no network: a socket that is not a unix one fails the test."""

import pytest
from pytest_socket import disable_socket, enable_socket


@pytest.fixture(autouse=True)
def _no_network() -> object:
    disable_socket(allow_unix_socket=True)
    yield
    enable_socket()
