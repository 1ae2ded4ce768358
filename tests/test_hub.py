"""Models go to a hub and come back (examples/hub.py): what is asked of the library, and what becomes of the files."""
import pickle
from pathlib import Path
from unittest.mock import create_autospec

import pytest
import torch

from hot_nbdev.adapters import add_adapters
from hot_nbdev.model_config import ClassifierConfig, SegmenterConfig
from hot_nbdev.models import make_model
from hot_nbdev.rivals.linear import LinearConfig

library = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub: pip install huggingface_hub")
from hub import FILES, model_card, pull_model, push_model  # noqa: E402

SMALL = dict(patch=(2, 2), dim=8, depth=1, heads=2)
KINDS = [ClassifierConfig(**SMALL, classes=3), SegmenterConfig(**SMALL, attention="axial", causal=(0,)), LinearConfig()]


class Hub:
    "Repositories in memory: the calls of huggingface_hub that models ask for, with its arguments and its answers."
    def __init__(self, folder):
        self.folder, self.commits, self.branches, self.asked = folder, {}, {}, []

    def commit(self, repo, branch, files):
        "A commit with these files beside those that were there; its number."
        number = f"{len(self.commits):040x}"
        self.commits[number] = self.commits.get(self.branches.get((repo, branch)), {}) | files
        self.branches[repo, branch] = number
        return number

    def find(self, repo, revision):
        return self.commits[self.branches.get((repo, revision or "main"), revision)]

    def create_repo(self, repo_id, *, private=None, exist_ok=False):
        assert exist_ok or (repo_id, "main") not in self.branches
        self.asked.append(("create", private))
        if (repo_id, "main") not in self.branches:
            self.commit(repo_id, "main", {".gitattributes": b""})
        return library.RepoUrl(f"https://huggingface.co/{repo_id}")

    def create_branch(self, repo_id, *, branch, exist_ok=False):
        assert exist_ok or (repo_id, branch) not in self.branches
        self.branches.setdefault((repo_id, branch), self.branches[repo_id, "main"])

    def file_exists(self, repo_id, filename, *, revision=None):
        return filename in self.find(repo_id, revision)

    def upload_folder(self, *, repo_id, folder_path, revision=None, commit_message=None):
        self.asked.append(("upload", commit_message))
        files = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}
        number = self.commit(repo_id, revision or "main", files)
        return library.CommitInfo(f"https://huggingface.co/{repo_id}/commit/{number}", commit_message, "", number)

    def snapshot_download(self, repo_id, *, revision=None, allow_patterns=None, **options):
        self.asked.append(("download", options))
        files = self.find(repo_id, revision)
        folder = self.folder / str(len(self.asked))
        for name in library.utils.filter_repo_objects(files, allow_patterns=allow_patterns):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(files[name])
        return str(folder)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    "A hub behind the names of the real library, which takes only such arguments as the real ones take."
    small = Hub(tmp_path)
    api = create_autospec(library.HfApi)
    for name in ("create_repo", "create_branch", "file_exists", "upload_folder"):
        getattr(api.return_value, name).side_effect = getattr(small, name)
    monkeypatch.setattr(library, "HfApi", api)
    monkeypatch.setattr(library, "snapshot_download",
                        create_autospec(library.snapshot_download, side_effect=small.snapshot_download))
    return small


@pytest.mark.parametrize("config", KINDS, ids=lambda c: type(c).__name__)
def test_a_model_comes_back_as_it_was(hub, config):
    torch.manual_seed(0)
    model = make_model(config, dtype=torch.float64)
    number = push_model(model, "someone/thing", token="hf_x")
    library.HfApi.assert_called_with(token="hf_x")
    assert set(hub.find("someone/thing", "main")) == {*FILES, "README.md", ".gitattributes"}
    for revision in (None, number):
        again = pull_model("someone/thing", revision)
        assert type(again) is type(model) and again.config == config and not again.training
        ours, theirs = model.state_dict(), again.state_dict()
        assert ours.keys() == theirs.keys() and all(t.equal(theirs[n]) for n, t in ours.items())
        assert {t.dtype for t in theirs.values()} == {t.dtype for t in ours.values()}
    assert pull_model("someone/thing", dtype=torch.float32).state_dict()[next(iter(ours))].dtype == torch.float32


def test_only_two_files_are_downloaded_and_no_pickle(hub, tmp_path):
    push_model(make_model(KINDS[0]), "someone/thing")
    others = {"pytorch_model.bin": pickle.dumps(print), "setup.py": b"raise SystemExit", "a/config.json": b"{}"}
    hub.commit("someone/thing", "main", others)
    pull_model("someone/thing", cache_dir="own", local_files_only=True)
    assert hub.asked[-1] == ("download", {"cache_dir": "own", "local_files_only": True})
    assert sorted(path.name for path in (tmp_path / str(len(hub.asked))).rglob("*")) == sorted(FILES)
    hub.commit("someone/old", "main", {"config.json": b"{}", "pytorch_model.bin": pickle.dumps(print)})
    with pytest.raises((FileNotFoundError, ValueError), match="config.json|model.safetensors"):
        pull_model("someone/old")


def test_commits_and_branches_stay_what_they_are_and_repositories_may_be_private(hub):
    first, second, third = (make_model(KINDS[0]) for _ in range(3))
    number = push_model(first, "someone/thing", private=True)
    push_model(third, "someone/thing", revision="try")
    assert push_model(second, "someone/thing", message="Better") != number
    assert hub.asked[::2] == [("create", True), ("create", None), ("create", None)]
    assert hub.asked[1::2] == [("upload", "Upload model"), ("upload", "Upload model"), ("upload", "Better")]
    for revision, model in ((number, first), (None, second), ("try", third)):
        assert pull_model("someone/thing", revision).head.weight.equal(model.head.weight)


def test_a_card_that_the_hub_reads_is_written_once_and_says_how_the_model_is_loaded(hub):
    model, names = make_model(KINDS[0]), {}
    push_model(model, "someone/thing")
    text = hub.find("someone/thing", "main")["README.md"].decode()
    assert text == model_card(model, "someone/thing") and library.ModelCard(text).data.library_name == "hot_nbdev"
    exec(text.split("```")[1].removeprefix("python"), names)
    assert names["model"].head.weight.equal(model.head.weight)
    hub.commit("someone/thing", "main", {"README.md": b"mine"})
    push_model(model, "someone/thing")
    assert hub.find("someone/thing", "main")["README.md"] == b"mine"


def test_what_could_not_be_pulled_is_not_pushed(hub):
    model = add_adapters(make_model(KINDS[0]), "*.ff.*")
    with pytest.raises(ValueError, match="load_model could not read it"):
        push_model(model, "someone/thing")
    assert hub.asked == []
