"""User-data: what cloud-init does at a VM's first boot, as one MIME multipart text (R14).

Theory of operation. Up to three things go into one message: the pool's `config_data`, the admin's
cloud-config, and the vm-registrar agent's script.

*Order and merging.* cloud-init merges cloud-configs one after the other, and by default a later
`users` or `packages` replaces the earlier one. The rule of a merge is the one of the part that is
merged in. So the admin's part comes after the pool's and brings its own rule in its `Merge-Type`
header: lists are joined, the admin's entries first; what the pool set otherwise stays as it set
it. The pool's part may be a plain cloud-config, one with a `merge_how` of its own, an archive, an
include or a whole multipart: nothing of either side is lost in any of them. (Were the admin's part
first, each of these but the plain one could replace `users`, and nobody could log in.) One kind
asks for the opposite order: a `#cloud-config-jsonp` patches what is already there.

*Encoding.* cloud-init reads the message with Python's `email` parser from text, where a non-ASCII
character of an unencoded part comes out as another one. Plain ASCII stays readable (7bit),
anything else is quoted-printable or base64, whichever is shorter, since Nova limits the size.

Everything in here is text that may hold secrets (C11): no repr, warning or error shows any of it.
"""

import base64
import binascii
import hashlib
import re
import string

import attrs

from poolsm.templates import ADMIN_USER, admin_cloud_config, registrar_script

NOVA_USER_DATA_LIMIT_BYTES = 65_535
"""Nova's limit of a server's `user_data`, in bytes of the base64 text (its API schema)."""

BAKED_CONFIG_PREFIX = "jupyter-snapshot-"
"""Configs of images with everything installed: no package is updated or added at boot."""

PLAIN_TYPE = "text/plain"
"""The type of a part that cloud-init would log about and ignore."""

_MIME_TYPE = "multipart/mixed"
_JSONP_TYPE = "text/cloud-config-jsonp"
_MERGE_RULE = "list(prepend)+dict(no_replace,recurse_list)+str()"

# cloud-init's own table (`cloudinit.handlers.INCLUSION_TYPES_MAP`), longest beginning first as it
# searches: `#include` is also the beginning of `#include-once`.
_TYPE_OF_BEGINNING = (
    ("#cloud-config-archive", "text/cloud-config-archive"),
    ("#cloud-config-jsonp", _JSONP_TYPE),
    ("## template: jinja", "text/jinja2"),
    ("#cloud-boothook", "text/cloud-boothook"),
    ("#include-once", "text/x-include-once-url"),
    ("#cloud-config", "text/cloud-config"),
    ("#part-handler", "text/part-handler"),
    ("#include", "text/x-include-url"),
    ("#!", "text/x-shellscript"),
)

# What editors and web forms leave in front of a text: blanks, byte order marks, invisible spaces.
_BLANKS = string.whitespace + "\ufeff\u00a0\u200b\u2060"
_LINE_END = re.compile(r"\r+(?=\n|\Z)")
_ASCII_TEXT = re.compile(r"[\t\n -~]*")
_HEADER_BLOCK = re.compile(r"(?:[!-9;-~]+:[^\n]*\n(?:[ \t][^\n]*\n)*)+(?=\n)")
_CONTENT_TYPE_HEADER = re.compile(r"^content-type:", re.IGNORECASE | re.MULTILINE)
_BOUNDARY_HEADER = re.compile(
    r"^content-type:\s*multipart/[^\n]*(?:\n[ \t][^\n]*)*?boundary=\"?(?P<boundary>[^\"\s;]+)",
    re.IGNORECASE | re.MULTILINE,
)
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~_/=*-]*")
_EMPTY_TOKEN = re.compile(
    r"\b(?:ServerApp|NotebookApp|IdentityProvider)\.token"
    r"(?:[ \t]*=[ \t]*(?P<quote>\\?[\"'])(?P=quote)(?![\w$])|=(?=[\s,;]|[\"'](?:[\s,;\]]|\Z)|\Z))"
)


def _check_line(name: str, value: str) -> None:
    """Refuse what is not one line of printable text, without showing it."""
    if not value or not value.isprintable() or value != value.strip():
        raise ValueError(
            f"{name} (not shown, {len(value)} characters): must be one line of printable text "
            "without blanks around it"
        )


@attrs.frozen
class Registrar:
    """Where the vm-registrar agent comes from and what it reports to.

    The values end up in the VM's user-data, which every process of that VM can ask the metadata
    service for: give the agent a database role that may do nothing else.

    Attributes:
        pg_dsn: the agent's PostgreSQL connection string.
        control_center_url: the Control Center's address.
        download_url: the agent's executable, `https://` only: it is run as root.

    Raises:
        ValueError: a value is not one line of text, or the download is not https.
    """

    pg_dsn: str = attrs.field(repr=False)
    control_center_url: str = attrs.field(repr=False)
    download_url: str = attrs.field(repr=False)

    def __attrs_post_init__(self) -> None:
        _check_line("registrar pg_dsn", self.pg_dsn)
        _check_line("registrar control_center_url", self.control_center_url)
        _check_line("registrar download_url", self.download_url)
        if not self.download_url.lower().startswith("https://"):
            raise ValueError(
                "registrar download_url (not shown): must begin with https://, since the agent is "
                "run as root and only a verified certificate says where it is from"
            )


@attrs.frozen
class UserDataParts:
    """What a VM's user-data is made of.

    Attributes:
        config_id: the pool's config, as named in its declaration.
        config_data: the config's text, of any kind that cloud-init knows; blank for none.
        admin_public_key: OpenSSH public keys, one a line, as in `authorized_keys`; blank for none.
        packages: the pool's extra packages, by name, as the image's package manager takes them.
        registrar: the vm-registrar agent, or None for none.

    Raises:
        ValueError: a text that is not valid Unicode, a private key, a package that is no name.
    """

    config_id: str
    config_data: str = attrs.field(repr=False)
    admin_public_key: str = attrs.field(repr=False)
    packages: tuple[str, ...] = ()
    registrar: Registrar | None = None

    def __attrs_post_init__(self) -> None:
        lone = re.search("[\ud800-\udfff]", self.config_data)
        if lone is not None:
            raise ValueError(
                f"config_data of config {self.config_id!r}: half a surrogate pair at character "
                f"{lone.start()}; save it as UTF-8"
            )
        if "PRIVATE KEY" in self.admin_public_key:
            raise ValueError(
                "admin_public_key (not shown): this is a private key; give the .pub file's line"
            )
        for number, key in enumerate(_keys(self), start=1):
            _check_line(f"admin_public_key, key {number}", key)
            if len(key.split()) < 2:
                raise ValueError(
                    f"admin_public_key, key {number} (not shown): not an OpenSSH public key; "
                    "expected a type and the key, such as 'ssh-ed25519 AAAA...'"
                )
        for package in self.packages:
            # A name with a leading dash would be an option of the package manager.
            if not _PACKAGE.fullmatch(package):
                raise ValueError(f"package {package!r}: not a package name")


@attrs.frozen
class _Part:
    """One entity of the message: header lines and a body that is already encoded."""

    headers: tuple[str, ...]
    body: str


def mended_config_data(config_data: str) -> str:
    r"""The config's text as it goes to the VM: blanks in front gone, `\r\n` to `\n` (R14).

    The kernel starts a script only if `#!` are its very first bytes (`Exec format error`
    otherwise), and a carriage return would become part of the interpreter's name. A Jinja
    template's own first line is taken off at boot, so blanks behind it go as well.
    """
    text = _LINE_END.sub("", config_data).lstrip(_BLANKS)
    if _type_of_beginning(text) == "text/jinja2":
        first, newline, rest = text.partition("\n")
        return first + newline + rest.lstrip(_BLANKS)
    return text


def config_content_type(config_data: str) -> str:
    """The MIME type of a config by its first line, as cloud-init decides it.

    `multipart/mixed` stands for a text that is a MIME message already, `text/plain` for one that
    cloud-init does not know and would ignore.
    """
    text = mended_config_data(config_data)
    known = _type_of_beginning(text)
    if known is not None:
        return known
    return _MIME_TYPE if _is_mime(text) else PLAIN_TYPE


def _type_of_beginning(text: str) -> str | None:
    beginning = text[:32].lower()
    return next((kind for start, kind in _TYPE_OF_BEGINNING if beginning.startswith(start)), None)


def _is_mime(text: str) -> bool:
    """Whether a text is header lines, one of them Content-Type, then an empty line."""
    block = _HEADER_BLOCK.match(text)
    return block is not None and _CONTENT_TYPE_HEADER.search(block.group()) is not None


def _is_baked(parts: UserDataParts) -> bool:
    return parts.config_id.startswith(BAKED_CONFIG_PREFIX)


def _keys(parts: UserDataParts) -> tuple[str, ...]:
    """The admin's keys, one a line; empty lines and comments are no keys."""
    lines = (line.strip() for line in parts.admin_public_key.replace("\t", " ").split("\n"))
    return tuple(line for line in lines if line and not line.startswith("#"))


def _encoded_body(text: str) -> tuple[str, str]:
    """A text's transfer encoding and its body in it, all ASCII; see the head of this module."""
    if _ASCII_TEXT.fullmatch(text):
        return "7bit", text
    data = text.encode()
    in_base64 = base64.encodebytes(data).decode("ascii")
    if re.search(r"[\x00-\x08\x0b-\x1f]", text):
        # Control characters and lone carriage returns survive nothing else for certain.
        return "base64", in_base64
    quoted = binascii.b2a_qp(data, istext=True).decode("ascii")
    if len(quoted) <= len(in_base64):
        return "quoted-printable", quoted
    return "base64", in_base64


def _text_part(content_type: str, name: str, text: str, *extra_headers: str) -> _Part:
    encoding, body = _encoded_body(text)
    headers = (
        f'Content-Type: {content_type}; charset="utf-8"',
        "MIME-Version: 1.0",
        f"Content-Transfer-Encoding: {encoding}",
        f'Content-Disposition: attachment; filename="{name}"',
        *extra_headers,
    )
    return _Part(headers, body)


def _config_part(config_data: str) -> _Part | None:
    """The pool's part, None if blank.

    A MIME message is put in as it is: its headers are the part's headers, and cloud-init walks
    into a multipart inside a multipart.
    """
    text = mended_config_data(config_data)
    if not text:
        return None
    content_type = config_content_type(text)
    if content_type == _MIME_TYPE:
        head, _, body = text.partition("\n\n")
        return _Part(tuple(head.split("\n")), body)
    return _text_part(content_type, "poolsm-10-config", text)


def _parts_in_order(parts: UserDataParts) -> tuple[_Part, ...]:
    """The message's entities, in the order in which cloud-init merges them.

    Scripts run after everything else, in the order of their file names: the names here put the
    registrar last, also after cloud-init's own names (`part-001`).
    """
    config = _config_part(parts.config_data)
    admin = _text_part(
        "text/cloud-config",
        "poolsm-20-admin",
        admin_cloud_config(_keys(parts), None if _is_baked(parts) else parts.packages),
        f"Merge-Type: {_MERGE_RULE}",
    )
    ordered = [config, admin]
    if config_content_type(parts.config_data) == _JSONP_TYPE:
        ordered.reverse()
    if parts.registrar is not None:
        agent = parts.registrar
        script = registrar_script(agent.pg_dsn, agent.control_center_url, agent.download_url)
        ordered.append(_text_part("text/x-shellscript", "poolsm-30-registrar", script))
    return tuple(part for part in ordered if part is not None)


def _boundary(entities: tuple[str, ...]) -> str:
    """A boundary that occurs in no entity: a digest of them all, taken again while it does."""
    digest = hashlib.sha256("\0".join(entities).encode()).hexdigest()
    while True:
        boundary = f"poolsm-{digest[:32]}"
        if not any(boundary in entity for entity in entities):
            return boundary
        digest = hashlib.sha256(digest.encode()).hexdigest()


def render_user_data(parts: UserDataParts) -> str:
    """The user-data of a VM: one MIME multipart text, the same for the same parts (R14).

    It is text, not yet base64: see `encode_user_data`. It holds secrets (C11).
    """
    entities = tuple(
        "\n".join(part.headers) + "\n\n" + part.body for part in _parts_in_order(parts)
    )
    boundary = _boundary(entities)
    # cloud-init takes a text for MIME only if MIME-Version is among its first 4096 bytes.
    lines = [f'Content-Type: multipart/mixed; boundary="{boundary}"', "MIME-Version: 1.0", ""]
    for entity in entities:
        lines += [f"--{boundary}", entity]
    lines += [f"--{boundary}--", ""]
    return "\n".join(lines)


def encode_user_data(text: str) -> str:
    """The text as Nova's `user_data` takes it: base64 of its UTF-8, on one line."""
    return base64.b64encode(text.encode()).decode("ascii")


def check_user_data(pool_name: str, parts: UserDataParts) -> tuple[str, ...]:
    """What keeps Nova from taking this user-data; empty if nothing does (R14, at declaration).

    Nova counts bytes after encoding, so that is what is counted and named.
    """
    size_bytes = len(encode_user_data(render_user_data(parts)))
    if size_bytes <= NOVA_USER_DATA_LIMIT_BYTES:
        return ()
    problem = (
        f"pool {pool_name!r}: user-data is {size_bytes} bytes once encoded, "
        f"{size_bytes - NOVA_USER_DATA_LIMIT_BYTES} over Nova's limit of "
        f"{NOVA_USER_DATA_LIMIT_BYTES}; shorten config {parts.config_id!r} "
        f"({len(parts.config_data.encode())} bytes) or have it fetch the rest with '#include'"
    )
    return (problem,)


def user_data_warnings(parts: UserDataParts) -> tuple[str, ...]:
    """What an operator should know about this user-data although it is accepted.

    No text of the config is shown. YAML is looked at by line, so what is written unusually may go
    unseen.
    """
    found: list[str] = []
    if not _keys(parts):
        found.append(f"no admin_public_key: nobody can log in as {ADMIN_USER!r} over SSH")
    if _is_baked(parts) and parts.packages:
        found.append(
            f"packages {', '.join(parts.packages)} are not installed: images of "
            f"{BAKED_CONFIG_PREFIX}* configs are baked"
        )
    subject = f"config {parts.config_id!r}"
    return tuple(found) + tuple(
        f"{subject}: {warning}" for warning in _config_warnings(parts.config_data)
    )


def _config_warnings(config_data: str) -> list[str]:
    text = mended_config_data(config_data)
    found: list[str] = []
    if text and config_data[0] in _BLANKS:
        found.append("blanks before its first line were removed; save it without them")
    if "\r\n" in config_data:
        found.append("its line ends are CRLF and were mended; save it with LF")
    content_type = config_content_type(text)
    if text and content_type == PLAIN_TYPE:
        found.append(
            "its first line names no content type, so cloud-init ignores it; begin with '#!' for "
            "a script or '#cloud-config' for YAML"
        )
    if content_type == _MIME_TYPE:
        found += _mime_warnings(text)
    if content_type in {"text/cloud-config", "text/jinja2"}:
        found += [
            f"its {key!r} is not a list, so it cannot be merged with the admin's and one of them "
            "is lost; write it as a list"
            for key in ("users", "packages")
            if _is_no_list(key, text)
        ]
    if _EMPTY_TOKEN.search(text):
        found.append(
            "Jupyter has no token: whoever reaches its port can run commands; set ServerApp.token"
        )
    return found


def _mime_warnings(text: str) -> list[str]:
    found: list[str] = []
    if not text.isascii():
        found.append(
            "it is a MIME message with non-ASCII text in it, which cloud-init reads wrongly; "
            "encode that part as base64"
        )
    head = text.partition("\n\n")[0]
    boundary = _BOUNDARY_HEADER.search(head)
    if "multipart/" in head.lower() and (
        boundary is None or f"\n--{boundary['boundary']}--" not in text
    ):
        found.append("it is a MIME multipart without its boundary or last line, so parts are lost")
    return found


def _is_no_list(key: str, text: str) -> bool:
    """Whether a YAML text's top-level key visibly holds something other than a list."""
    lines = iter(text.split("\n"))
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name.rstrip() != key:
            continue
        value = value.split(" #")[0].strip()
        if value:
            return value[0] not in "[&*!" and not value.startswith(("{{", "{%"))
        rest = (following.strip() for following in lines)
        first = next((item for item in rest if item and not item.startswith("#")), "")
        return not first.startswith(("-", "[", "{{", "{%"))
    return False
