"""Most tests here hold very few filters, and are about how many are searched."""

from collections.abc import Iterator

import pytest

from stentor.matching.index import index

#: Modules in which few filters are tested one by one, as an index does.
AS_IT_IS = ("test_engines", "test_direct", "test_content")


@pytest.fixture(autouse=True, scope="module")
def _searched_however_few(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        if request.module.__name__.rpartition(".")[2] not in AS_IT_IS:
            patched.setattr(index, "FEW", 0)
        yield
