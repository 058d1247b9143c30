"""The error tree: what may be retried, what an error says, and what it never says."""

import pytest

from fleet_manager.core.clients import errors as tree
from fleet_manager.core.clients.errors import MAX_TEXT, ClientError, Rejected, Unavailable, UnavailableTimeout
from fleet_manager.core.clients.nova import errors as nova
from fleet_manager.core.clients.slurmrest import errors as slurm

RETRIED = [
    tree.Unavailable,
    tree.UnavailableTimeout,
    slurm.SlurmctldUnavailable,
    slurm.SlurmctldTimeout,
    slurm.AnswerLost,
    slurm.UnreadableAnswer,
    slurm.SubmitUnknown,
    nova.NovaBusy,
    nova.NoCapacity,
]
FINAL = [
    tree.Rejected,
    tree.NotFound,
    tree.Conflict,
    tree.AuthRejected,
    tree.Forbidden,
    tree.BadRequest,
    tree.IncompatibleServer,
    slurm.NodeNotFound,
    slurm.JobNotFound,
    slurm.ReservationNotFound,
    slurm.InvalidTransition,
    slurm.NodeBusy,
    slurm.ReservationBusy,
    slurm.ReservationExists,
    slurm.NotAnAdministrator,
    slurm.SubmitRefused,
    slurm.AmbiguousNode,
    slurm.NotSupportedHere,
    nova.QuotaExceeded,
    nova.AmbiguousName,
    nova.Misconfigured,
    nova.BuildFailed,
    nova.LandedElsewhere,
    nova.ServerNotFound,
    nova.ImageNotFound,
    nova.FlavorNotFound,
    nova.NetworkNotFound,
    nova.HostNotFound,
    nova.DuplicateServers,
    nova.CannotRebuild,
    nova.PinForbidden,
]


def classes_below(root: type[ClientError]) -> set[type[ClientError]]:
    return {root}.union(*(classes_below(child) for child in root.__subclasses__()))


def of_these_modules(found: set[type[ClientError]]) -> set[type[ClientError]]:
    return {cls for cls in found if cls.__module__ in (tree.__name__, slurm.__name__, nova.__name__)}


@pytest.mark.parametrize("cls", RETRIED)
def test_what_could_not_answer_is_retried(cls: type[ClientError]) -> None:
    assert issubclass(cls, Unavailable)
    assert cls.retryable


@pytest.mark.parametrize("cls", FINAL)
def test_a_no_is_final(cls: type[ClientError]) -> None:
    assert issubclass(cls, Rejected)
    assert not cls.retryable


def test_every_error_is_on_one_side_and_in_these_lists() -> None:
    assert of_these_modules(classes_below(Unavailable)) == set(RETRIED)
    assert of_these_modules(classes_below(Rejected)) == {*FINAL, slurm.SlurmTokenRejected}
    assert not set(RETRIED) & set(FINAL)


@pytest.mark.parametrize("cls", [slurm.SlurmctldTimeout, slurm.AnswerLost, slurm.SubmitUnknown])
def test_a_write_that_may_have_happened_is_known_by_its_class(cls: type[ClientError]) -> None:
    assert issubclass(cls, UnavailableTimeout)


def test_not_found_is_never_taken_for_unavailable_nor_the_other_way_round() -> None:
    assert not issubclass(slurm.UnreadableAnswer, tree.NotFound)
    assert not issubclass(slurm.NodeNotFound, Unavailable)


def test_an_error_says_who_was_asked_what_and_what_came_back() -> None:
    error = slurm.NodeBusy(
        "a job is on it",
        peer="slurmrestd",
        method="DELETE",
        url="http://ctl:6820/slurm/v0.0.45/node/gpu-001",
        status=422,
        request_id="req-1",
        code=2016,
    )
    assert str(error) == (
        "slurmrestd: a job is on it (DELETE http://ctl:6820/slurm/v0.0.45/node/gpu-001, status 422, code 2016, "
        "request req-1)"
    )


def test_an_error_without_an_answer_says_no_status() -> None:
    assert str(Unavailable("connection refused", peer="hub")) == "hub: connection refused"
    assert str(Unavailable("refused", peer="hub", method="GET")) == "hub: refused (GET)"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hub/api/v1/sites/lab/devices?token=s3cr3t", "https://hub/api/v1/sites/lab/devices"),
        ("https://bob:s3cr3t@hub:8443/x", "https://hub:8443/x"),
        ("https://hub/x#s3cr3t", "https://hub/x"),
        ("http://127.0.0.1:6820/slurm/v0.0.45/nodes/?update_time=1", "http://127.0.0.1:6820/slurm/v0.0.45/nodes/"),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    error = Unavailable("x", peer="hub", method="GET", url=url)
    assert error.url == shown
    assert "s3cr3t" not in str(error)
    assert "s3cr3t" not in repr(error)


@pytest.mark.parametrize("length", [MAX_TEXT - 1, MAX_TEXT])
def test_a_text_that_fits_is_kept(length: int) -> None:
    assert Rejected("x" * length, peer="hub").message == "x" * length


@pytest.mark.parametrize("length", [MAX_TEXT + 1, 10**6])
def test_a_long_text_is_cut_and_shows_that_it_was(length: int) -> None:
    error = Rejected("x" * length, peer="hub")
    assert len(error.message) == MAX_TEXT
    assert error.message.endswith("…")
    assert len(str(error)) < MAX_TEXT + 50
    assert len(error.args[0]) == MAX_TEXT


def test_an_error_is_told_apart_by_class_and_never_by_text() -> None:
    with pytest.raises(tree.NotFound):
        raise slurm.NodeNotFound("gone, or never there", peer="slurmrestd")
    assert not isinstance(slurm.NodeNotFound("x", peer="slurmrestd"), slurm.JobNotFound)


def test_an_error_has_no_attribute_that_holds_a_body() -> None:
    error = Rejected("no", peer="nova", method="POST", url="http://nova/servers", status=400)
    assert set(vars(error)) == {"message", "peer", "method", "url", "status", "request_id", "code"}


def test_a_rejected_token_is_waited_out_slowly_as_somebody_renews_it() -> None:
    assert slurm.SlurmTokenRejected.retryable
    assert slurm.SlurmTokenRejected.retry_after.total_seconds() == 30
