"""The garbage collector of a broker never takes long."""

import gc

from stentor.cli.serving import _collect_rarely

#: Objects that the collector may look at in one go. Each may refer to a thousand values.
FEW = 8_000


def test_the_collector_looks_at_few_objects_at_a_time() -> None:
    """However many filters come at once, and all of them stay."""
    looked_at: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            young = range(info["generation"] + 1)
            looked_at.append(sum(len(gc.get_objects(each)) for each in young))

    thresholds = gc.get_threshold()
    try:
        _collect_rarely()
        gc.callbacks.append(note)
        kept = [[i] for i in range(200_000)]
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*thresholds)
        gc.unfreeze()
    assert len(looked_at) >= len(kept) // FEW
    assert max(looked_at) <= FEW
