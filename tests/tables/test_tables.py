"""The compiled tables are `transitions`' own, row by row and along random walks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transitions import Machine, MachineError

from poolsm import assignment, pool, vm
from poolsm.tables import TableError, compile_table

TABLES = {
    "vm": (vm.STATES, vm.TRANSITIONS, vm.TABLE, (vm.PENDING, *vm.OBSERVED)),
    "pool": (
        (pool.POOL_ACTIVE, pool.DRAINING, pool.REMOVED),
        pool.POOL_TRANSITIONS,
        pool.POOL_TABLE,
        (pool.POOL_ACTIVE,),
    ),
    "breaker": (
        (pool.CLOSED, pool.OPEN, pool.HALF_OPEN),
        pool.BREAKER_TRANSITIONS,
        pool.BREAKER_TABLE,
        (pool.CLOSED,),
    ),
    "assignment": (
        (
            assignment.WAITING,
            assignment.CLAIMING,
            assignment.GRANTED,
            assignment.REFUSED,
            assignment.EXPIRED,
            assignment.RELEASED,
            assignment.LOST,
        ),
        assignment.ASSIGNMENT_TRANSITIONS,
        assignment.ASSIGNMENT_TABLE,
        (assignment.WAITING,),
    ),
}


class Model:
    """What a `transitions` machine drives."""


def driven(name, state):
    """The machine of a table, with a model in one state."""
    states, rows, _, _ = TABLES[name]
    model = Model()
    machine = Machine(model, states=list(states), initial=state, auto_transitions=False)
    for trigger, sources, dest in rows:
        machine.add_transition(trigger, list(sources), dest)
    return model


def triggers(name):
    return sorted({trigger for trigger, _, _ in TABLES[name][1]})


@pytest.mark.parametrize("name", TABLES)
def test_every_pair_leads_where_the_library_says(name):
    states, _, table, _ = TABLES[name]
    for state in states:
        model = driven(name, state)
        for trigger in triggers(name):
            model.state = state
            if (state, trigger) in table:
                model.trigger(trigger)
                assert model.state == table[state, trigger]
            else:
                with pytest.raises(MachineError):
                    model.trigger(trigger)


@pytest.mark.parametrize("name", TABLES)
@given(data=st.data())
def test_random_walks_are_the_same(name, data):
    states, _, table, initial = TABLES[name]
    state = data.draw(st.sampled_from(initial))
    model = driven(name, state)
    for trigger in data.draw(st.lists(st.sampled_from(triggers(name)), max_size=30)):
        if (state, trigger) in table:
            state = table[state, trigger]
            model.trigger(trigger)
        assert model.state == state
    assert state in states


def test_a_deletion_never_goes_back():
    """I5, read off the table."""
    for (state, _), dest in vm.TABLE.items():
        if state == vm.DELETING:
            assert dest in (vm.DELETING, vm.DELETED)
    assert not [pair for pair in vm.TABLE if pair[0] == vm.DELETED]


@pytest.mark.parametrize(
    ("status", "trigger"),
    [
        ("ACTIVE", "see_ACTIVE"),
        ("build", "see_BUILD"),
        ("SHELVED_OFFLOADED", "see_SHELVED_OFFLOADED"),
        ("SOFT_DELETED", "see_SOFT_DELETED"),
        ("FROBBED", "see_UNKNOWN"),
        ("", "see_UNKNOWN"),
    ],
)
def test_what_nova_shows_is_an_input(status, trigger):
    assert vm.input_for(status) == trigger
    assert (vm.PENDING, trigger) in vm.TABLE


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([("go", ("a",), "z")], "unknown states ['z']"),
        ([("go", ("y",), "b")], "unknown states ['y']"),
        ([("go", ("a",), "b"), ("go", ("a",), "a")], "2 rows for 'a' and 'go'"),
        ([("stay", ("a",), "a")], "nothing leads to ['b']"),
    ],
)
def test_a_table_that_is_wrong_is_refused(rows, says):
    with pytest.raises(TableError) as failure:
        compile_table("test", ("a", "b"), rows, initial=("a",))
    assert says in str(failure.value)
