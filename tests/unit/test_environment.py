"""The replaced service's environment variables go on working, and say what is wrong with them."""

import pytest

from poolsm.userdata import Registrar
from poolsm_runners.environment import EnvironmentVariableError, read_environment

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE0lDgS1aHvJ1sFcPkCq0jvYb1zqW4xYQnS3mJb1k7aB admin"
WARM = {
    "NETWORK_ID": "net-1",
    "SERVER_IMAGE_REF": "worker",
    "SERVER_FLAVOR_REF": "m1.tiny",
    "METADATA_MIN_VM": "3",
}
REGISTRAR = {
    "REGISTRAR_PG_DSN": "postgres://u:secret@db/cc",
    "REGISTRAR_CONTROL_CENTER_URL": "https://cc.example",
    "REGISTRAR_DOWNLOAD_URL": "https://cc.example/agent",
}


def refused(variables):
    with pytest.raises(EnvironmentVariableError) as failure:
        read_environment(variables)
    assert "secret" not in str(failure.value)
    return str(failure.value)


def test_nothing_set_is_nothing_said():
    found = read_environment({"NETWORK_ID": "  ", "PATH": "/bin"})
    assert (found.cloud, found.infra_cloud) == ("", "")
    assert (found.admin_key, found.registrar, found.warm_pool) == (None, None, None)


def test_the_warm_pool_is_declared_by_its_variables():
    spec = read_environment(WARM).warm_pool.spec
    assert (spec.serverpool_id, spec.user_id, spec.warm) == ("pool_vms", "admin", True)
    assert (spec.min_vm, spec.max_vm, spec.networks) == (3, 0, ("net-1",))
    assert (spec.image_ref, spec.flavor_ref, spec.key_name) == ("worker", "m1.tiny", None)
    more = {
        "API_KEYNAME": "k",
        "METADATA_MAX_VM": "9",
        "METADATA_SERVERPOOL_ID": "hot",
        "METADATA_USER_ID": "ops",
    }
    spec = read_environment({**WARM, **more}).warm_pool.spec
    assert (spec.key_name, spec.max_vm, spec.serverpool_id, spec.user_id) == ("k", 9, "hot", "ops")


@pytest.mark.parametrize("value", ["three", "-1", "+3", "3.0", "1_000", "0x3", "٣"])
def test_a_number_that_is_none_is_refused_and_never_read_as_0(value):
    text = refused({**WARM, "METADATA_MIN_VM": value})
    assert "METADATA_MIN_VM" in text
    assert repr(value) in text


def test_a_part_of_the_warm_pool_names_what_is_missing():
    text = refused({"NETWORK_ID": "net-1", "SERVER_IMAGE_REF": "worker"})
    assert "SERVER_FLAVOR_REF, METADATA_MIN_VM are not set" in text
    assert "unset NETWORK_ID, SERVER_IMAGE_REF" in text


def test_what_a_pool_may_not_be_is_said_in_the_variables_names():
    text = refused({**WARM, "METADATA_MAX_VM": "2"})
    assert "METADATA_MIN_VM = 3: is above METADATA_MAX_VM = 2" in text


def test_the_registrar_needs_all_three():
    assert read_environment(REGISTRAR).registrar == Registrar(*REGISTRAR.values())
    assert "secret" not in repr(read_environment(REGISTRAR))
    for name in REGISTRAR:
        text = refused({key: value for key, value in REGISTRAR.items() if key != name})
        assert f"{name} = (not set)" in text


def test_an_agent_is_never_fetched_without_a_certificate():
    text = refused({**REGISTRAR, "REGISTRAR_DOWNLOAD_URL": "http://cc.example/agent"})
    assert "REGISTRAR_DOWNLOAD_URL" in text


def test_the_admins_key_is_read(tmp_path):
    path = tmp_path / "id.pub"
    path.write_text(KEY + "\n")
    found = read_environment({"SSH_PUBLIC_KEY_PATH": str(path)})
    assert found.admin_key.strip() == KEY
    assert KEY not in repr(found)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
        (b"", "has 0 bytes"),
        (b"\xff\xfe", "is no text file"),
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n", "private"),
        (b"x" * 70_000, "has 65537 bytes"),
    ],
)
def test_what_is_no_public_key_is_refused_and_not_shown(tmp_path, content, says):
    path = tmp_path / "id.pub"
    if content is not None:
        path.write_bytes(content)
    text = refused({"SSH_PUBLIC_KEY_PATH": str(path)})
    assert says in text
    assert "SSH_PUBLIC_KEY_PATH" in text


def test_every_problem_is_said_at_once():
    text = refused({"NETWORK_ID": "n", "REGISTRAR_PG_DSN": "secret", "SSH_PUBLIC_KEY_PATH": "/no"})
    assert len(text.splitlines()) == 4
