"""Secrets of a log: what user-data is rendered from, at dispatch (C11, R14)."""

from __future__ import annotations

import json
from collections.abc import Callable

from attrs import asdict

from poolsm.commands import UserDataRef
from poolsm.userdata import Registrar, UserDataParts, encode_user_data, render_user_data

LookUp = Callable[[str], str]


def registrar_text(registrar: Registrar) -> str:
    """A registrar's configuration as the one secret that the log keeps of it."""
    return json.dumps(asdict(registrar), sort_keys=True)


def parts_of(ref: UserDataRef, look_up: LookUp) -> UserDataParts:
    """Everything that goes into one server's user-data, in the clear.

    Raises:
        SecretMissingError: the log has no secret of that digest.
        ValueError: a part is not what it must be.
    """
    registrar = json.loads(look_up(ref.registrar.digest)) if ref.registrar else None
    return UserDataParts(
        config_id=ref.config_id,
        config_data=look_up(ref.config_data.digest) if ref.config_data else "",
        admin_public_key=look_up(ref.admin_key.digest) if ref.admin_key else "",
        packages=ref.packages,
        registrar=Registrar(**registrar) if registrar else None,
    )


def encoded_user_data(ref: UserDataRef, look_up: LookUp) -> str:
    """The text of a create call's ``user_data``; raises like :func:`parts_of`."""
    return encode_user_data(render_user_data(parts_of(ref, look_up)))
