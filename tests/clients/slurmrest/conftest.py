"""The fixtures of this folder."""

from tests.clients.slurmrest.talk import clock, talk

__all__ = ["clock", "talk"]
