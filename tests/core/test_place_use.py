"""How full places are, over all runs."""

from agentfs.core.attention import PlaceUse, slots_in_use


def test_slots_are_counted_over_all_runs() -> None:
    uses = [
        PlaceUse("cluster", begun=3, sent=1, waiting=("convert~c", "convert~d")),
        PlaceUse("box", begun=1, sent=0, waiting=()),
        PlaceUse("cluster", begun=2, sent=0, waiting=("send",)),
        PlaceUse("gone", begun=1, sent=0, waiting=()),  # a place that the settings no longer have
    ]
    assert list(slots_in_use(uses, {"cluster": 6, "box": 1})) == [
        "box: 1 of 1 slot in use",
        "cluster: 6 of 6 slots in use, 3 steps waiting",
        "gone: 1 slot in use",
    ]
    assert list(slots_in_use([], {"cluster": 6})) == []
