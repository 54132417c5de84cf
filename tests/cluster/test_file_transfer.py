"""Files that are sent to nodes are written once, entirely, and with the bytes that were sent."""

import threading

import pytest
from logitsmith.cluster import files as file_transfer
from logitsmith.cluster.files import MissingFileError, NeededFiles, PublishedFile, needed_files, publish_files
from logitsmith.cluster.tasks import ClusterError


class Store:
    """An object store in this process; ``gets`` is the number of fetched objects."""

    class exceptions:  # noqa: N801 - as in Ray
        RayError = LookupError

    def __init__(self):
        self.objects, self.gets = [], 0

    def put(self, value):
        self.objects.append(value)
        return len(self.objects) - 1

    def get(self, reference):
        self.gets += 1
        return self.objects[reference]


@pytest.fixture
def store(monkeypatch, tmp_path):
    store = Store()
    monkeypatch.setattr(file_transfer, "import_ray", lambda: store)
    monkeypatch.setattr(file_transfer, "_CHUNK_BYTES", 4)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return store


@pytest.fixture
def paths(tmp_path):
    names = ("models/m-00001-of-00002.gguf", "models/m-00002-of-00002.gguf", "adapters/m.gguf")
    paths = [tmp_path / name for name in names]
    for number, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"0123456789" * (number + 1))
    return paths


def test_an_existing_file_is_used(paths):
    files = needed_files(paths)
    assert [files.find(path) for path in paths] == paths


@pytest.mark.parametrize(
    "content",
    [None, b"another model", b"012345678X", b"X123456789"],
    ids=["absent", "of another size", "with another end", "with another beginning"],
)
def test_an_absent_or_different_file_is_missing(paths, content):
    files = needed_files(paths)
    paths[0].unlink()
    if content is not None:
        paths[0].write_bytes(content)
    with pytest.raises(MissingFileError):
        files.find(paths[0])


def test_published_files_are_written_once_and_the_parts_of_a_model_stay_together(store, paths):
    files = publish_files(needed_files(paths))
    contents = [path.read_bytes() for path in paths]
    for path in paths:
        path.unlink()
    found = [files.find(path) for path in paths]
    assert [path.read_bytes() for path in found] == contents
    assert found[0].parent == found[1].parent != found[2].parent
    assert [path.name for path in found] == [path.name for path in paths]
    gets = store.gets
    assert [files.find(path) for path in paths] == found
    assert store.gets == gets


def test_workers_of_a_node_write_one_copy(store, paths):
    files = publish_files(needed_files(paths))
    found = []
    threads = [threading.Thread(target=lambda: found.append(files.find(paths[0]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert store.gets == len(store.objects)


def test_files_of_a_crashed_worker_are_removed(store, paths, tmp_path):
    files = publish_files(needed_files(paths))
    found = files.find(paths[0])
    partial = found.parent.parent.with_name(found.parent.parent.name + ".partial")
    found.parent.parent.rename(partial)
    found_again = files.find(paths[0])
    assert found_again == found
    assert not partial.exists()


def test_damaged_bytes_are_rejected(store, paths):
    files = publish_files(needed_files(paths))
    store.objects[0] = b"evil"
    with pytest.raises(ClusterError, match=r"m-00001-of-00002.gguf arrived damaged on a node"):
        files.find(paths[0])
    store.objects[0] = b"0123"
    assert files.find(paths[0]).read_bytes() == b"0123456789"


def test_a_folder_that_cannot_be_written_is_named(store, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file where a folder should be")
    files = NeededFiles({tmp_path / "m": ""}, (PublishedFile(tmp_path / "m", "0" * 64, ()),))
    with pytest.raises(ClusterError, match=r"the model cannot be written on a node: .*cache"):
        files.find(tmp_path / "m")
