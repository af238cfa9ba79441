"""What poolsm itself writes into a VM's user-data: the admin's cloud-config and two shell scripts.

The scripts run as root from cloud-init's `scripts-user` module, once per instance. Every value
from outside is checked against a narrow pattern or quoted with `shlex`, every wait has a limit,
and both are clean under shellcheck (held by a test).
"""

import json
import re
import shlex

ADMIN_USER = "vmuser"
"""The login of the admin on every VM."""

# The reference grammar of container registries, less digests of unusual algorithms. It admits no
# blank and no leading dash, so an image can never become an option of `docker run`.
_IMAGE = re.compile(
    r"[a-z0-9][a-z0-9.-]*(?::[0-9]+)?"
    r"(?:[._/-]+[a-z0-9]+)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?:@sha256:[0-9a-f]{64})?"
)
_COURSE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{0,512}")

_JUPYTER = """\
#!/bin/bash
# Starts JupyterLab with nbgrader in a container, reachable on port @PORT@ of this VM.
set -euo pipefail

# Docker may still be starting, or be installed by the packages of this very boot.
waited_s=0
until timeout 10 docker info >/dev/null 2>&1; do
  if [ "$waited_s" -ge 900 ]; then
    echo "jupyter: docker does not answer after $waited_s s; see: systemctl status docker" >&2
    exit 1
  fi
  sleep 2
  waited_s=$((waited_s + 2))
done

mkdir -p /home/vmuser/nbgrader/source \\
  /home/vmuser/nbgrader/exchange \\
  /home/vmuser/nbgrader/submitted_copies
cat > /home/vmuser/nbgrader_config.py <<'NBCFG'
c = get_config()
c.CourseDirectory.course_id = '@COURSE_ID@'
c.CourseDirectory.root = '/home/jovyan/nbgrader'
c.Exchange.root = '/home/jovyan/nbgrader/exchange'
NBCFG

# The container's user jovyan is UID 1000: without this nbgrader can write nothing, and a bind
# mount keeps the host's owner, so it is done before the container starts.
chown -R 1000:1000 /home/vmuser/nbgrader /home/vmuser/nbgrader_config.py
chmod -R u+rwX /home/vmuser/nbgrader

docker rm -f jupyter >/dev/null 2>&1 || true
# Course images made by repo2docker have no start-notebook.sh, so jupyter lab is run directly.
# nbgrader can leave a `packaging` that is too old for JupyterLab 4 (no InvalidName in it).
docker run -d --restart=always --name jupyter -p @PORT@:@PORT@ \\
  -v /home/vmuser/nbgrader:/home/jovyan/nbgrader \\
  -v /home/vmuser/nbgrader_config.py:/home/jovyan/nbgrader_config.py \\
  -v /home/vmuser:/home/jovyan/work \\
  @IMAGE@ \\
  bash -lc @COMMAND@
"""

_REGISTRAR = """\
#!/bin/sh
# Installs the vm-registrar agent, which announces this VM to the Control Center.
set -eu

pg_dsn=@PG_DSN@
control_center_url=@CONTROL_CENTER_URL@
download_url=@DOWNLOAD_URL@
agent=/usr/local/bin/vm-registrar
attempts_max=10

# The certificate is always verified, over redirects too: what comes back is run as root.
fetch() {
  if command -v curl >/dev/null 2>&1; then
    curl --fail --silent --show-error --location --proto '=https' --proto-redir '=https' \\
      --connect-timeout 10 --max-time 120 --output "$1" -- "$download_url"
  elif command -v wget >/dev/null 2>&1; then
    # wget cannot be held to https over a redirect, so it follows none.
    wget --quiet --max-redirect=0 --tries=1 --timeout=30 --output-document="$1" -- \\
      "$download_url"
  else
    echo "vm-registrar: neither curl nor wget is installed" >&2
    return 1
  fi
}

mkdir -p /usr/local/bin
umask 077
download=$(mktemp /usr/local/bin/.vm-registrar.XXXXXX)
trap 'rm -f "$download"' EXIT
attempt=1
until fetch "$download" && [ -s "$download" ]; do
  if [ "$attempt" -ge "$attempts_max" ]; then
    echo "vm-registrar: download failed $attempt times, giving up" >&2
    exit 1
  fi
  sleep $((attempt * 2))
  attempt=$((attempt + 1))
done
chmod 0755 "$download"
mv -f "$download" "$agent"

mkdir -p /etc/vm-registrar
# Inside double quotes systemd gives a backslash, quote, dollar and backtick a meaning.
quoted() {
  printf '%s' "$1" | sed 's/[\\\\"$`]/\\\\&/g'
}
{
  printf 'PG_DSN="%s"\\n' "$(quoted "$pg_dsn")"
  printf 'CONTROL_CENTER_URL="%s"\\n' "$(quoted "$control_center_url")"
} > /etc/vm-registrar/environment
chmod 0600 /etc/vm-registrar/environment

cat > /etc/systemd/system/vm-registrar.service <<'UNIT'
[Unit]
Description=Announces this VM to the Control Center
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
EnvironmentFile=/etc/vm-registrar/environment
ExecStart=/usr/local/bin/vm-registrar
Restart=on-failure
RestartSec=10

[Install]
WantedBy=multi-user.target
UNIT
chmod 0644 /etc/systemd/system/vm-registrar.service
systemctl daemon-reload
systemctl enable vm-registrar.service
# Not waited for: this script itself runs inside a unit of the boot.
systemctl --no-block restart vm-registrar.service
"""

_PLACE = re.compile(r"@([A-Z_]+)@")


def _fill(template: str, values: dict[str, str]) -> str:
    """The template with each `@NAME@` replaced, in one pass: a value's own text is left alone."""
    return _PLACE.sub(lambda place: values[place.group(1)], template)


def admin_cloud_config(public_keys: tuple[str, ...], packages: tuple[str, ...] | None) -> str:
    """The admin's cloud-config: `vmuser` with sudo and the keys, then the packages (R14).

    `default` keeps the image's own user, which a `users` list without it would not create: it is
    the one that gets the server's Nova key pair. cloud-init makes it after `vmuser`, which so has
    UID 1000, the container's UID, on an image without users. Strings are JSON strings, which YAML
    reads alike.

    Args:
        public_keys: OpenSSH public keys, checked already (`userdata.UserDataParts`).
        packages: what to install after an update and upgrade; None leaves all three out, for
            images that are baked.
    """
    lines = [
        "#cloud-config",
        "users:",
        '- "default"',
        f"- name: {json.dumps(ADMIN_USER)}",
        '  sudo: "ALL=(ALL) NOPASSWD:ALL"',
        '  shell: "/bin/bash"',
        "  lock_passwd: true",
    ]
    if public_keys:
        lines.append("  ssh_authorized_keys:")
        lines += [f"  - {json.dumps(key, ensure_ascii=False)}" for key in public_keys]
    if packages is not None:
        lines += ["package_update: true", "package_upgrade: true"]
        if packages:
            lines.append("packages:")
            lines += [f"- {json.dumps(package)}" for package in packages]
    return "\n".join(lines) + "\n"


def jupyter_config_data(
    course_id: str = "jupyter",
    image: str = "jupyter-nbgrader:latest",
    port: int = 8888,
    token: str = "",
) -> str:
    """The bundled `config_data` that runs JupyterLab with nbgrader in a Docker container (R14).

    It waits for Docker (15 minutes at most), makes nbgrader's folders and its configuration,
    gives them to UID 1000, and starts the container with a restart policy, one port and three
    mounts, upgrading `packaging` before `jupyter lab`.

    Args:
        course_id: nbgrader's course, 1 to 128 letters, digits, `.`, `_`, `-`.
        image: a container image reference, as `docker run` takes it.
        port: the TCP port, 1 to 65535, on the VM and in the container alike.
        token: what a browser must show, letters, digits, `.`, `_`, `~`, `-`. Empty lets everybody
            in who reaches the port; `user_data_warnings` says so.

    Raises:
        ValueError: an argument is none of these; the text names it and, unless it is the token,
            its value.
    """
    if not _COURSE_ID.fullmatch(course_id):
        raise ValueError(
            f"course_id {course_id!r}: use 1 to 128 letters, digits, '.', '_' or '-', "
            "the first a letter or digit"
        )
    if not _IMAGE.fullmatch(image):
        raise ValueError(
            f"image {image!r}: not a container image reference such as 'registry/name:tag'"
        )
    if isinstance(port, bool) or not 1 <= port <= 65_535:
        raise ValueError(f"port {port!r}: use a TCP port from 1 to 65535")
    if not _TOKEN.fullmatch(token):
        raise ValueError(
            f"token of {len(token)} characters (not shown): use at most 512 letters, digits, "
            "'.', '_', '~' or '-'"
        )
    command = (
        "pip install -U packaging >/dev/null 2>&1 || true; "
        f"exec jupyter lab --ip=0.0.0.0 --port={port} "
        f'--ServerApp.token="{token}" --ServerApp.password=""'
    )
    return _fill(
        _JUPYTER,
        {
            "PORT": str(port),
            "COURSE_ID": course_id,
            "IMAGE": shlex.quote(image),
            "COMMAND": shlex.quote(command),
        },
    )


def registrar_script(pg_dsn: str, control_center_url: str, download_url: str) -> str:
    """The script that downloads the vm-registrar agent and installs it as a systemd unit (R14).

    The agent finds its settings as `PG_DSN` and `CONTROL_CENTER_URL` in its environment, from a
    file that root alone can read. The download verifies the server's certificate and is tried 10
    times, over about 90 s of pauses. The arguments are `userdata.Registrar`'s, checked there: they
    hold no line breaks.
    """
    return _fill(
        _REGISTRAR,
        {
            "PG_DSN": shlex.quote(pg_dsn),
            "CONTROL_CENTER_URL": shlex.quote(control_center_url),
            "DOWNLOAD_URL": shlex.quote(download_url),
        },
    )
