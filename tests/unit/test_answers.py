"""What the cloud's answers mean: every text that a rule treats in its own way."""

import pytest

from poolsm import answers
from poolsm.answers import classify, is_quota_text
from poolsm.events import CallAnswered

CREATE, STOP, START, DELETE = "CreateServer", "StopServer", "StartServer", "DeleteServer"


def outcome(kind, status=None, message="", error_kind="badRequest", **more):
    answer = CallAnswered(
        at_ms=2,
        started_ms=1,
        command_id="c",
        http_status=status,
        error_kind=error_kind,
        message=message,
        **more,
    )
    return classify(kind, answer).kind


@pytest.mark.parametrize(
    ("kind", "status", "message", "means"),
    [
        (CREATE, 202, "", answers.DONE),
        (DELETE, 204, "", answers.DONE),
        (CREATE, 400, "Can not find requested image", answers.IMAGE),
        (CREATE, 400, "Image 1f-2 is not active.", answers.IMAGE),
        (CREATE, 400, "Invalid input for field/attribute imageRef. Value: x", answers.IMAGE),
        (CREATE, 400, "Flavor's memory is too small for requested image.", answers.INVALID),
        (CREATE, 400, "Flavor X could not be found.", answers.INVALID),
        (CREATE, 400, "Network 1 could not be found.", answers.INVALID),
        (CREATE, 400, "Invalid key_name provided.", answers.INVALID),
        (CREATE, 400, "'networks' is a required property", answers.INVALID),
        (CREATE, 409, "Multiple possible networks found", answers.INVALID),
        (CREATE, 409, "More than one possible network found. Specify network ID(s) to select",
         answers.INVALID),
        (CREATE, 409, "No Unique Match Found.", answers.INVALID),
        (CREATE, 409, "Port 1 is still in use.", answers.REFUSED),
        (CREATE, 403, "Quota exceeded for instances: Requested 1, already used 1 of 1 instances",
         answers.QUOTA),
        (CREATE, 403, "Quota exceeded for cores, instances: Requested 22, 11, used 0, 0",
         answers.QUOTA),
        (CREATE, 403, "Quota exceeded for ram: Requested 512, but already used 512 of 600 ram",
         answers.QUOTA),
        (CREATE, 403, "Maximum number of ports exceeded", answers.QUOTA),
        (CREATE, 403, "Quota exceeded, too many servers in group", answers.QUOTA),
        (CREATE, 403, "Maximum number of floating IPs exceeded", answers.QUOTA),
        (CREATE, 403, "VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded",
         answers.QUOTA),
        (CREATE, 403, "Maximum number of metadata items exceeds 128", answers.INVALID),
        (CREATE, 403, "Policy doesn't allow os_compute_api:servers:create to be performed.",
         answers.REFUSED),
        (STOP, 409, "Cannot 'stop' instance 1 while it is in vm_state stopped", answers.ALREADY),
        (START, 409, "Cannot 'start' instance 1 while it is in vm_state active", answers.ALREADY),
        (START, 409, "Cannot 'start' instance 1 while it is in vm_state error", answers.REFUSED),
        (STOP, 409, "Instance 1 is not ready", answers.REFUSED),
        (DELETE, 404, "Instance 1 could not be found.", answers.GONE),
        (CREATE, 429, "", answers.BUSY),
        (DELETE, 503, "", answers.BUSY),
        (CREATE, 503, "", answers.UNKNOWN),
        (CREATE, 500, "", answers.UNKNOWN),
        (CREATE, 401, "", answers.UNKNOWN),
        (DELETE, 502, "", answers.UNKNOWN),
    ],
)  # fmt: skip
def test_what_nova_says(kind, status, message, means):
    assert outcome(kind, status, message) == means


@pytest.mark.parametrize("status", [400, 403, 404, 409])
def test_what_a_proxy_says_proves_nothing(status):
    assert outcome(DELETE, status, "<html>no</html>", error_kind="") == answers.UNKNOWN
    assert outcome(CREATE, status, "<html>no</html>", error_kind="") == answers.UNKNOWN


@pytest.mark.parametrize(
    ("transport_error", "means"),
    [
        ("timeout", answers.UNKNOWN),
        ("connection", answers.UNKNOWN),
        ("other", answers.UNKNOWN),
        ("not_sent", answers.REFUSED),
        ("auth", answers.REFUSED),
    ],
)
def test_no_answer_is_unknown_unless_nothing_was_sent(transport_error, means):
    assert outcome(CREATE, transport_error=transport_error) == means


def test_an_unmet_expectation_is_said_with_its_reason():
    answer = CallAnswered(at_ms=2, started_ms=1, command_id="c", unmet="expected pool a, found b")
    found = classify(DELETE, answer)
    assert (found.kind, found.text) == (answers.UNMET, "expected pool a, found b")


def test_retry_after_is_handed_on():
    answer = CallAnswered(at_ms=2, started_ms=1, command_id="c", http_status=429, retry_after_s=17)
    assert classify(CREATE, answer).retry_after_s == 17


@pytest.mark.parametrize(
    ("fault", "quota"),
    [
        ("No valid host was found. ", False),
        ("Build of instance 1 aborted: no space left", False),
        ("Build of instance 1 aborted: Quota exceeded for resources: ['port'].", True),
        ("PortLimitExceeded: Maximum number of ports exceeded", True),
    ],
)
def test_a_fault_may_be_a_quota_found_late(fault, quota):
    assert is_quota_text(fault) is quota
