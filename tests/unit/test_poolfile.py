"""Pool files: what is accepted, and that every error is told at once with key, value, remedy."""

from pathlib import Path

import pytest

from poolsm.spec import PoolKey
from poolsm.templates import jupyter_config_data
from poolsm_runners.environment import Environment
from poolsm_runners.poolfile import PoolFileError, read_pool_file, read_pool_files

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "pools.toml"
ADMIN = Environment(admin_key="ssh-ed25519 AAAA admin")

POOL = """
[[pool]]
id = "intro"
user = "alice"
image = "worker-image"
flavor = "m1.tiny"
networks = ["lab-net"]
min_vm = 2
max_vm = 5
"""


@pytest.fixture
def write(tmp_path):
    def write(text, name="pools.toml"):
        path = tmp_path / name
        if isinstance(text, bytes):
            path.write_bytes(text)
        else:
            path.write_text(text)
        return path

    return write


@pytest.fixture
def errors(write):
    def errors(text):
        with pytest.raises(PoolFileError) as caught:
            read_pool_file(write(text), ADMIN)
        return str(caught.value).splitlines()

    return errors


def test_the_example_is_read_without_a_warning():
    file = read_pool_file(EXAMPLE, ADMIN)
    assert file.warnings == ()
    assert [str(pool.spec.key) for pool in file.pools] == [
        "admin/pool_vms",
        "alice/intro-python",
        "bob/desktops",
        "teachers/exam-room",
    ]
    assert [pool.spec.warm for pool in file.pools] == [True, False, False, False]
    (config,) = file.configs
    assert config.data == jupyter_config_data("intro", token="change-me")
    assert file.origin == f"file {EXAMPLE}"


def test_a_pool_with_everything(write):
    write("#!/bin/sh\necho hi\n", "boot.sh")
    path = write(
        POOL + 'key_name = "k"\nconfig_id = "c"\nconfig_data_file = "boot.sh"\npackages = ["git"]\n'
        'off_days = "sunday, saturday"\ntime_zone = "Europe/Paris"\nwarm_match = "hardware"\n'
        "reuse = true\nrespect_user_stop = true\nboot_timeout_s = 60\n"
    )
    (pool,) = read_pool_file(path, ADMIN).pools
    assert pool.config_data == "#!/bin/sh\necho hi\n"
    spec = pool.spec
    assert spec.key == PoolKey("intro", "alice")
    assert (spec.min_vm, spec.max_vm, spec.boot_timeout_s) == (2, 5, 60)
    assert (spec.key_name, spec.config_id, spec.packages) == ("k", "c", ("git",))
    assert spec.off_days == ("saturday", "sunday")
    assert spec.reuse
    assert spec.respect_user_stop
    assert spec.warm_match == "hardware"
    assert not spec.warm


def test_long_names_are_the_same_keys(write):
    text = POOL.replace("id =", "serverpool_id =").replace("user =", "user_id =")
    text = text.replace("image =", "image_ref =").replace("flavor =", "flavor_ref =")
    assert read_pool_file(write(text)).pools == read_pool_file(write(POOL)).pools


def test_both_names_of_a_key_are_one_too_many(errors):
    (line,) = errors(POOL + 'image_ref = "other"\n')
    assert 'pool[1] "intro".image_ref' in line
    assert "says the same as 'image'; keep one of the two" in line


def test_the_default_warm_pool_can_be_said_to_be_cold(write):
    text = POOL.replace('"intro"', '"pool_vms"').replace('"alice"', '"admin"')
    assert read_pool_file(write(text)).pools[0].spec.warm
    assert not read_pool_file(write(text + "warm = false\n")).pools[0].spec.warm


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('min_vm = "5"', ".min_vm = '5': is a text, not a whole number; write a whole number"),
        ("min_vm = true", ".min_vm = True: is true or false, not a whole number;"),
        ("min_vm = 2.0", ".min_vm = 2.0: is a number with a decimal point, not a whole number;"),
        ("min_vm = -1", ".min_vm = -1: is below 0; give 0 or more"),
        ("min_vm = 6", ".min_vm = 6: is above max_vm = 5; lower min_vm, raise max_vm"),
        ("min_vm = 10000000000000000000", ": is above 1000000; give 1000000 or less"),
        ('networks = "lab-net"', ".networks = 'lab-net': is a text, not a list of texts; write"),
        ("networks = [5]", ".networks = 5: entry 1 is a whole number, not a text;"),
        ('networks = ["a", "a"]', ".networks = ['a', 'a']: names one twice; name each once"),
        ("image = 5", ".image = 5: is a whole number, not a text; write it in quotes"),
        ('flavor = ""', ".flavor = '': is empty; give the id or the name"),
        ('reuse = "true"', ".reuse = 'true': is a text, not true or false; write true or false"),
        ("id = 1", ".id = 1: is a whole number, not a text"),
        ('id = "a/b"', ".id = 'a/b': has a control character or '/'; use letters"),
        ('user = ""', ".user = '': is empty or has outer blanks; give a name"),
        ('off_days = "monday-friday"', ".off_days = 'monday-friday': is no English weekday"),
        ('off_days = ["Sunday"]', ".off_days = 'Sunday': is no English weekday in lower case;"),
        ('time_zone = "Paris"', ".time_zone = 'Paris': does not exist; use an IANA name"),
        ('warm_match = "x"', ".warm_match = 'x': is unknown; use 'exact' or 'hardware'"),
        ('packages = ["-f"]', ".packages = '-f': is no package name; use names"),
        ("boot_timeout_s = 0", ".boot_timeout_s = 0: is below 1; give 1 or more"),
        ("minvm = 3", ".minvm = 3: is no key that is known here; did you mean 'min_vm'?"),
        ('config_data_file = "no.sh"', "cannot be read (No such file or directory); correct the"),
        ("config_data = 5", ".config_data = (not shown): is a whole number, not a text"),
    ],
)
def test_one_wrong_line_is_one_error(errors, line, error):
    key = line.split(" =")[0]
    kept = [old for old in POOL.splitlines() if not old.startswith(f"{key} =")]
    (found,) = errors("\n".join([*kept, line]))
    assert "pools.toml: pool[1]" in found
    assert error in found


def test_every_error_is_told_at_once(errors):
    found = errors(
        '[[pool]]\nid = "a"\nmin_vm = "5"\nnetworks = "x"\nnope = 1\n'
        '[[config]]\nname = "c"\n'
        '[[pool]]\nuser = "u"\nflavor = 1\nmin_vm = 3\nmax_vm = 2\n'
        "[other]\nx = 1\n"
    )
    assert [line.split(": ", 1)[1].split(" = ")[0] for line in found] == [
        "other",
        'config[1] "c".data',
        'pool[1] "a".user',
        'pool[1] "a".min_vm',
        'pool[1] "a".networks',
        'pool[1] "a".nope',
        'pool[1] "a".flavor',
        'pool[1] "a".image',
        "pool[2].id",
        "pool[2].flavor",
        "pool[2].min_vm",
        "pool[2].image",
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('[[pool]]\nid = "a\n', "line 2, column"),
        ("[[pool]]\nid = 1\nid = 2\n", "line 3, column"),
        (b'[[pool]]\nid = "\xff"\n', "is no UTF-8 text; save it as UTF-8"),
        ("[pool]\nid = 1\n", "pool = ...: is one table or value, not a list of tables; write [[po"),
        ("pool = [1]\n", "pool[1] = 1: is no table; write each as a table under [[pool]]"),
        ("[[pools]]\nid = 1\n", "is unknown at the top level; write [[pool]] and [[config]]"),
        ("a = " + "[" * 5000, "is nested too deeply"),
    ],
)
def test_what_is_no_pool_file(errors, text, error):
    (line,) = errors(text)
    assert error in line


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(PoolFileError, match=r"cannot be read \(No such file or directory\)"):
        read_pool_file(tmp_path / "none.toml")
    with pytest.raises(PoolFileError, match=r"cannot be read \(Is a directory\)"):
        read_pool_file(tmp_path)


def test_a_byte_order_mark_is_no_error(write):
    assert len(read_pool_file(write(b"\xef\xbb\xbf" + POOL.encode())).pools) == 1


def test_a_pool_stands_once_in_all_files(write):
    first, second = write(POOL, "a.toml"), write(POOL + POOL, "b.toml")
    with pytest.raises(PoolFileError) as caught:
        read_pool_files([first, second])
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert all("pool alice/intro is declared already by" in line for line in lines)
    assert 'a.toml pool[1] "intro"' in lines[0]


def test_the_same_id_of_two_users_is_two_pools(write):
    path = write(POOL + POOL.replace("alice", "bob"))
    assert len(read_pool_file(path).pools) == 2


def test_a_config_stands_once(errors):
    config = '[[config]]\nname = "c"\ndata = "#!/bin/sh"\n'
    (line,) = errors(config + config)
    assert "config system/c is declared already by" in line


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ('data = "#!"\ndata_file = "x"', ".data_file = (not shown): stands beside data; keep one"),
        ("", ".data = (not set): the config has no data; give data, data_file or template"),
        ('template = "jupiter"', ".template = 'jupiter': is no bundled template; did you mean 'ju"),
        ('template = "jupyter"\nport = 0', ".port = 0: is refused; use a TCP port from 1 to 65535"),
        ('template = "jupyter"\nport = "1"', ".port = '1': is a text, not a whole number"),
        ('template = "jupyter"\ncourse_id = "a b"', ".course_id = 'a b': is refused; use 1 to 128"),
        ('data = "#!"\nport = 1', ".port = (not shown): is an option of a template; set template"),
        ('data = "#!"\nuser = " x"', ".user = ' x': is no name; use 1 to 255 printable"),
    ],
)
def test_wrong_configs(errors, lines, error):
    found = errors(f'[[config]]\nname = "c"\n{lines}\n')
    assert len(found) == 1
    assert error in found[0]


def test_no_error_shows_a_secret(errors):
    text = (
        '[[config]]\nname = "c"\ntemplate = "jupyter"\ntoken = "tops3cret bad"\n'
        '[[config]]\nname = "d"\ntokens = "tops3cret that is misspelled"\ndata = ["tops3cret"]\n'
    )
    assert "tops3cret" not in "\n".join(errors(text))


def test_user_data_that_is_too_large_names_pool_and_size(errors):
    config = f'[[config]]\nname = "big"\ndata = "#!/bin/sh\\n# {"x" * 50_000}"\n'
    (line,) = errors(config + POOL + 'config_id = "big"\n')
    assert 'pool[1] "intro" = alice/intro: user-data is 6' in line
    assert "over Nova's limit of 65535; shorten config 'big' (5001" in line


def test_the_config_of_user_system_is_the_one_that_is_checked(write):
    big = f'[[config]]\nname = "c"\nuser = "bob"\ndata = "#!/bin/sh\\n# {"x" * 50_000}"\n'
    small = '[[config]]\nname = "c"\ndata = "#!/bin/sh"\n'
    assert read_pool_file(write(small + big + POOL + 'config_id = "c"\n'), ADMIN).pools


def test_off_days_are_shown_in_full_h11(write):
    (note,) = read_pool_file(write(POOL + 'off_days = "saturday,monday"\n')).notes
    assert note == (
        "pool alice/intro: off on monday, saturday; on tuesday, wednesday, thursday, friday, sunday"
    )
    file = read_pool_file(
        write(
            POOL + 'off_days = "monday,tuesday,wednesday,thursday,friday,saturday,sunday"\n'
            'time_zone = "Europe/Paris"\n'
        ),
        ADMIN,
    )
    assert file.notes[0].endswith("in Europe/Paris; never on")
    assert file.warnings == ("pool alice/intro: all seven days are off-days: it never runs",)


def test_warnings(write):
    first = read_pool_files(
        [write(POOL, "a.toml"), write(POOL.replace("alice", "bob"), "b.toml")], Environment()
    )
    assert [len(file.warnings) for file in first] == [1, 0]  # once, not for every pool
    assert "SSH_PUBLIC_KEY_PATH" in first[0].warnings[0]
    file = read_pool_file(write(POOL + 'config_id = "lost"\n'), ADMIN)
    assert "config 'lost' of pool alice/intro is in none of these files" in file.warnings[0]
    file = read_pool_file(write(POOL + 'config_data = "echo hi"\n'), ADMIN)
    assert file.warnings[0].startswith("pool alice/intro: config ''")
    file = read_pool_file(write('[[config]]\nname = "c"\ntemplate = "jupyter"\n'), ADMIN)
    assert file.configs
    assert "declares no pool and no config" in read_pool_file(write("")).warnings[0]
