"""Unit, container and manifests: sound by their own tools, and true of this program.

Nothing here starts a service manager, a container engine or a cluster. What can be checked
without one is: syntax, hardening, and that every option, variable, path, port and exit code
that they name is one that the program has. The unit's command is really run, with what the
unit gives it.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import click
import kubernetes_validate
import pytest
import yaml

from poolsm_runners.cli import exits, main
from poolsm_runners.health.checks import LOOP_LIMIT_S, QUESTIONS, TICK_LIMIT_S
from poolsm_runners.metrics.address import Address
from poolsm_runners.poolfile import read_pool_file
from tests.unit.observing import free_port

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "poolsm.service"
CONTAINERFILE = DEPLOY / "container" / "Containerfile"
KUBERNETES = DEPLOY / "kubernetes"
MAINTAINED = ("1.30", "1.34")  # the oldest and newest schema that are checked
SERVED = {"/metrics", *QUESTIONS}
ENVIRONMENT_PAGE = (ROOT / "docs" / "environment.md").read_text() + (
    ROOT / "runners/poolsm_runners/cli/__init__.py"
).read_text()


def understood(arguments):
    """The parameters of `poolsm run`, as the command line takes its arguments."""
    assert arguments[0] == "run"
    command = main.get_command(click.Context(main), "run")
    context = command.make_context("run", list(arguments[1:]))
    assert all(isinstance(path, Path) for path in context.params["files"])
    return context.params


# --- systemd --------------------------------------------------------------------------------


class Unit(dict):
    """Options of a unit file by section; each is a list, for they may be repeated."""

    def __init__(self, text):
        for section in re.split(r"^(?=\[)", text, flags=re.MULTILINE)[1:]:
            lines = [x for x in section.splitlines()[1:] if x and not x.startswith("#")]
            options = self.setdefault(section[1 : section.index("]")], {})
            for name, _, value in (line.partition("=") for line in lines):
                options.setdefault(name, []).append(value)

    def one(self, section, name):
        (value,) = self[section][name]
        return value

    @property
    def environment(self):
        return dict(x.split("=", 1) for x in self["Service"]["Environment"])


@pytest.fixture
def unit():
    return Unit(UNIT.read_text())


@pytest.fixture
def analyze(tmp_path):
    """systemd-analyze on the unit, its command being one that exists here."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not here (package systemd)")
    copy = tmp_path / "poolsm.service"

    def run(*arguments, change=lambda text: text):
        text = change(UNIT.read_text())
        copy.write_text(text.replace("/opt/poolsm/bin/poolsm", shutil.which("true")))
        return subprocess.run(
            [program, *arguments, copy], capture_output=True, text=True, check=False
        )

    return run


def test_systemd_understands_the_unit(analyze):
    done = analyze("verify", "--man=no")
    assert (done.returncode, done.stderr) == (0, "")
    broken = analyze("verify", "--man=no", change=lambda t: t.replace("WatchdogSec", "WatchDog"))
    assert "WatchDog" in broken.stderr


def test_the_service_may_do_little_else(analyze):
    """Exposure of at most 2.0 of 10, as systemd counts it."""
    done = analyze("security", "--offline=true", "--threshold=20")
    assert done.returncode == 0, done.stdout
    for needed in ("NoNewPrivileges", "ProtectSystem", "SystemCallFilter", "ProtectHome"):
        assert re.search(rf"✓ {needed}", done.stdout), needed
    loose = analyze(
        "security",
        "--offline=true",
        "--threshold=20",
        change=lambda text: re.sub(
            r"^(System|Restrict|Protect)\w+=.*$", "", text, flags=re.MULTILINE
        ),
    )
    assert loose.returncode != 0


def test_a_service_is_restarted_where_that_may_help(unit):
    kept = {int(code) for code in unit.one("Service", "RestartPreventExitStatus").split()}
    assert kept == {exits.NO, exits.USAGE}
    assert exits.UNUSABLE not in kept  # it mends itself when log, disk or cloud does
    assert unit.one("Service", "Restart") == "on-failure"
    assert unit.one("Unit", "StartLimitIntervalSec") == "0"
    assert unit.one("Service", "Type") == "notify"


def test_the_watchdog_waits_longer_than_a_tick_may_take(unit):
    assert float(unit.one("Service", "WatchdogSec")) > TICK_LIMIT_S > LOOP_LIMIT_S


def test_the_unit_says_what_the_program_takes(unit):
    program, *arguments = unit.one("Service", "ExecStart").split()
    assert Path(program).name == "poolsm"
    understood(arguments)
    for name in unit.environment:
        assert name in ENVIRONMENT_PAGE, name
    Address.parse(unit.environment["POOLSM_METRICS"])
    example = (DEPLOY / "systemd" / "environment.example").read_text()
    for name in re.findall(r"^(\w+)=", example, re.MULTILINE):
        assert f"`{name}`" in ENVIRONMENT_PAGE, name


def test_the_units_command_runs_and_tells_systemd(unit, tmp_path):
    """With the unit's own arguments and variables; only folders and port are the test's."""
    state, credentials, config = (tmp_path / name for name in ("state", "credentials", "etc"))
    for folder in (state / "poolsm", credentials, config):
        folder.mkdir(parents=True)
    (credentials / "clouds.yaml").write_text("clouds: {}\n")
    shutil.copy(KUBERNETES / "pools.toml", config)
    port = free_port()
    given = {
        name: value.replace("%S", str(state)).replace("%d", str(credentials))
        for name, value in unit.environment.items()
    }
    given["POOLSM_METRICS"] = f"127.0.0.1:{port}"
    arguments = unit.one("Service", "ExecStart").replace("/etc/poolsm", str(config)).split()[1:]
    code = "import sys; sys.argv[0] = 'poolsm'; from poolsm_runners.cli import main; main()"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("OS_", "POOLSM_"))}
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env={
                **clean,
                **given,
                "PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}",
                "NOTIFY_SOCKET": str(tmp_path / "notify"),
                "WATCHDOG_USEC": "3000000",
            },
            stderr=subprocess.PIPE,
        )
        try:
            assert manager.recv(1000).startswith(b"READY=1\n")
            while not manager.recv(1000).startswith(b"WATCHDOG=1\nSTATUS=running: 1 pools, 2 VMs"):
                pass
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
                assert answer.status == 200
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == exits.OK, errors
    assert (state / "poolsm" / "poolsm.db").stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in errors.splitlines() if line.startswith(b"{")]
    assert lines[-1]["event"] == "runner.stopped"


# --- the container --------------------------------------------------------------------------


def instructions():
    """(word, rest) of each instruction, continued lines joined."""
    text = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE)
    joined = re.sub(r"\\\n\s*", "", text)
    return [tuple(line.split(" ", 1)) for line in joined.splitlines() if line]


@pytest.fixture
def final():
    """The final stage's instructions by their word."""
    found = instructions()
    last = max(i for i, (word, _) in enumerate(found) if word == "FROM")
    stage = {}
    for word, rest in found[last:]:
        stage.setdefault(word, []).append(rest)
    return stage


def test_hadolint_finds_nothing(tmp_path):
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([program, CONTAINERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    bad = tmp_path / "Containerfile"
    bad.write_text("FROM python\nRUN cd /tmp\n")
    found = subprocess.run([program, bad], capture_output=True, text=True, check=False)
    assert "DL3006" in found.stdout


def test_the_image_is_made_in_two_stages_of_one_pinned_base(final):
    bases = [rest.partition(" AS ")[0] for word, rest in instructions() if word == "FROM"]
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.search(r":\d+\.\d+\.\d+-[\w-]+$", bases[0])
    assert not any("pip install" in run for run in final["RUN"])


def test_the_container_runs_the_program_as_nobody_special(final):
    (user,) = final["USER"]
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    (entry,), (arguments,) = final["ENTRYPOINT"], final["CMD"]
    assert json.loads(entry) == ["poolsm"]
    understood(json.loads(arguments))
    variables = dict(re.findall(r"(\w+)=(\S+)", " ".join(final["ENV"])))
    own = {name for name in variables if not name.startswith(("PYTHON", "PATH"))}
    assert {"POOLSM_LOG", "POOLSM_METRICS", "OS_CLIENT_CONFIG_FILE"} == own
    assert all(name in ENVIRONMENT_PAGE for name in own)
    address = Address.parse(variables["POOLSM_METRICS"])
    assert final["EXPOSE"] == [str(address.port)]
    assert str(Path(variables["POOLSM_LOG"]).parent) in json.loads(final["VOLUME"][0])
    assert final["STOPSIGNAL"] == ["SIGTERM"]


def test_the_health_check_asks_what_is_served(final):
    (check,) = final["HEALTHCHECK"]
    url = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", check)
    assert url[1] == final["EXPOSE"][0]
    assert url[2] in QUESTIONS
    command = json.loads(check.partition("CMD ")[2])
    compile(command[2], "healthcheck", "exec")


def test_what_the_image_copies_is_there(final):
    ignored = (CONTAINERFILE.parent / "Containerfile.dockerignore").read_text().split()
    for word, rest in instructions():
        if word == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists()
                assert f"!{source}" in ignored


# --- Kubernetes -----------------------------------------------------------------------------


def documents():
    for path in sorted(KUBERNETES.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            yield path.name, document


DOCUMENTS = list(documents())
BY_KIND = {document["kind"]: document for _, document in DOCUMENTS}
WITHOUT_SCHEMA = {"Kustomization", "ServiceMonitor"}  # not Kubernetes' own


@pytest.fixture
def pod():
    return BY_KIND["StatefulSet"]["spec"]["template"]["spec"]


@pytest.fixture
def container(pod):
    (found,) = pod["containers"]
    return found


@pytest.mark.parametrize("version", MAINTAINED)
@pytest.mark.parametrize(
    ("name", "document"), DOCUMENTS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_manifests_fit_kubernetes_schemas(name, document, version):
    if document["kind"] not in WITHOUT_SCHEMA:
        kubernetes_validate.validate(document, version, strict=True)


def test_a_misspelt_manifest_does_not_fit():
    bad = {**BY_KIND["Service"], "sepc": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(bad, MAINTAINED[-1], strict=True)


def test_the_kustomization_names_every_file():
    found = BY_KIND["Kustomization"]
    optional = {"servicemonitor.yaml", "kustomization.yaml"}
    assert set(found["resources"]) == {name for name, _ in DOCUMENTS} - optional
    (pools,) = found["configMapGenerator"]
    assert all((KUBERNETES / file).exists() for file in pools["files"])
    assert len(read_pool_file(KUBERNETES / "pools.toml").pools) == 1


def test_there_is_one_writer_of_the_log():
    spec = BY_KIND["StatefulSet"]["spec"]
    assert spec["replicas"] == 1
    assert spec["podManagementPolicy"] == "OrderedReady"
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_arguments_and_variables_are_the_programs(container):
    understood(container["args"])
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    assert all(f"{name}" in ENVIRONMENT_PAGE for name in variables)
    clouds = yaml.safe_load(BY_KIND["Secret"]["stringData"]["clouds.yaml"])["clouds"]
    assert {variables["OS_CLOUD"], variables["INFRA_OS_CLOUD"]} <= clouds.keys()
    image = dict(re.findall(r"(\w+)=(\S+)", CONTAINERFILE.read_text()))
    for name in ("POOLSM_LOG", "POOLSM_METRICS", "OS_CLIENT_CONFIG_FILE"):
        assert variables[name] == image[name]


def test_probes_and_scrapes_ask_what_is_served(container):
    (port,) = container["ports"]
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    assert Address.parse(variables["POOLSM_METRICS"]).port == port["containerPort"]
    asked = {
        probe: container[probe]["httpGet"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert {probe["port"] for probe in asked.values()} == {port["name"]}
    assert asked["livenessProbe"]["path"] == "/livez"  # what a restart may mend, and no more
    assert asked["readinessProbe"]["path"] == "/readyz"
    assert {probe["path"] for probe in asked.values()} <= SERVED
    notes = BY_KIND["StatefulSet"]["spec"]["template"]["metadata"]["annotations"]
    assert int(notes["prometheus.io/port"]) == port["containerPort"]
    assert notes["prometheus.io/path"] in SERVED
    (service,) = BY_KIND["Service"]["spec"]["ports"]
    assert service["targetPort"] == port["name"]
    (endpoint,) = BY_KIND["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["port"] == service["name"]
    assert endpoint["path"] in SERVED
    (into,) = BY_KIND["NetworkPolicy"]["spec"]["ingress"]
    assert [rule["port"] for rule in into["ports"]] == [port["containerPort"]]


def test_names_and_labels_meet(pod, container):
    chosen = BY_KIND["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        BY_KIND["StatefulSet"]["spec"]["selector"]["matchLabels"],
        BY_KIND["Service"]["spec"]["selector"],
        BY_KIND["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= chosen.items()
    monitor = BY_KIND["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
    assert monitor.items() <= BY_KIND["Service"]["metadata"]["labels"].items()
    assert BY_KIND["StatefulSet"]["spec"]["serviceName"] == BY_KIND["Service"]["metadata"]["name"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["clouds"]["secret"]["secretName"] == BY_KIND["Secret"]["metadata"]["name"]
    (pools,) = BY_KIND["Kustomization"]["configMapGenerator"]
    assert volumes["pools"]["configMap"]["name"] == pools["name"]
    claims = {c["metadata"]["name"] for c in BY_KIND["StatefulSet"]["spec"]["volumeClaimTemplates"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() == volumes.keys() | claims
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    assert str(Path(variables["POOLSM_LOG"]).parent) == mounts["log"]
    assert str(Path(variables["OS_CLIENT_CONFIG_FILE"]).parent) == mounts["clouds"]
    assert str(Path(container["args"][-1]).parent) == mounts["pools"]


def test_the_pod_may_do_little_else(pod, container):
    user = dict(re.findall(r"(USER) (\d+)", CONTAINERFILE.read_text()))["USER"]
    assert pod["securityContext"]["runAsUser"] == int(user)
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    assert not pod["enableServiceLinks"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
