"""R13: the order in which a reference is resolved, and what is said when it is nothing."""

from __future__ import annotations

import pytest

from poolsm.commands import CreateServer, FetchImage
from tests.rules.ingredients import image
from tests.unit.world import refusal

STALE = image("stale", name="course", owner="p-infra")


def used(w):
    w.run(20)
    return [command.image_id for command in w.issued(CreateServer)]


@pytest.mark.parametrize(("ref", "config_id", "found"), [
    ("img-1", "", "img-1"),  # an active image as it is
    ("stale", "", "new"),  # the infra project's name for it, looked up here
    ("gone", "course", "new"),  # the config_id as a name
    ("course", "", "new"),  # the reference itself as a name
    ("", "course", "new"),
    ("stale", "ubuntu", "new"),  # the infra name comes before the config_id
])  # fmt: skip
def test_the_order(world, ref, config_id, found):
    w = world(images=(image("img-1"), image("new", name="course")), infra=(STALE,))
    w.declare("tp", min_vm=1, image_ref=ref, config_id=config_id)
    assert used(w) == [found]


def test_nothing_found_says_what_was_tried_and_calls_nothing(world):
    w = world(images=(image("img-1"),), infra=(STALE,))
    w.declare("tp", min_vm=1, image_ref="stale", config_id="snap")
    assert used(w) == []
    w.run(3600)
    said = w.pool("tp").conditions["Provisioned"]
    assert said.reason == "ImageNotFound"
    assert said.message.startswith("image not found in student project: ")
    for tried in ("stale", "'course'", "'snap'"):
        assert tried in said.message
    assert not w.commands


@pytest.mark.parametrize(("images", "found"), [
    ((image("own"), image("public", visibility="public", owner="x")), "own"),
    ((image("infra", owner="p-infra"), image("public", visibility="public", owner="x")), "infra"),
    ((image("shared", visibility="shared", owner="x"),
      image("public", visibility="public", owner="x")), "shared"),
    ((image("public", visibility="public", owner="x"),), "public"),
    ((image("community", visibility="community", owner="x"),), None),
    ((image("own", status="deactivated"),), None),
])  # fmt: skip
def test_whose_images_a_name_means(world, images, found):
    w = world(images=images, infra=())
    w.declare("tp", min_vm=1)
    assert used(w) == ([found] if found else [])


def test_an_image_that_comes_later_is_found_without_being_asked_for(world):
    w = world(images=())
    w.declare("tp", min_vm=1)
    assert used(w) == []
    w.images["vm"] = (image("img-1"),)
    w.list_images()
    assert used(w) == ["img-1"]


def test_until_both_projects_are_listed_nothing_is_decided(world):
    w = world(catalogs=False)
    w.declare("tp", min_vm=1)
    w.run(60)
    assert w.reason("tp") == "CatalogsPending"
    assert not w.commands


def test_refused_for_its_image_it_resolves_once_more_then_fails(world):
    w = world()
    w.answer(CreateServer, refusal(400, "Can not find requested image"), times=None)
    w.declare("tp", min_vm=1)
    w.run(3600)
    assert len(w.issued(FetchImage)) == 1
    assert len(w.issued(CreateServer)) == 2
    assert w.reason("tp") == "SpecInvalid"
    w.behave()
    w.images["vm"] = (image("img-2"),)
    w.list_images()
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 1}


def test_flavors_and_networks_resolve_by_id_or_their_only_name(world):
    w = world()
    w.declare("tp", min_vm=1, flavor_ref="f-2", networks=("n-1", "wan"))
    w.run(20)
    (create,) = w.issued(CreateServer)
    assert (create.flavor_id, create.networks) == ("f-2", ("n-1", "n-2"))
    w.declare("bad", min_vm=1, flavor_ref="huge")
    w.run(20)
    assert w.reason("bad") == "FlavorNotFound"


@pytest.mark.parametrize("status", ["queued", "saving", "deactivated", "deleted"])
def test_an_image_that_is_not_active_is_not_used_but_its_name_is_known(world, status):
    old = image("old", name="course", status=status)
    w = world(images=(old, image("new", name="course")))
    w.declare("tp", min_vm=1, image_ref="old")
    assert used(w) == ["new"]
