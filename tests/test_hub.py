"""Models go to a hub and come back (examples/hub.py): a small hub on this machine hears the real library."""
import inspect
import pickle
import sys

import pytest
import torch
from smallhub import SmallHub

from hot_nbdev.adapters import add_adapters
from hot_nbdev.model_config import ClassifierConfig, SegmenterConfig
from hot_nbdev.models import make_model
from hot_nbdev.rivals.linear import LinearConfig

library = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub: pip install huggingface_hub")
from hub import FILES, model_card, pull_model, push_model  # noqa: E402

SMALL = dict(patch=(2, 2), dim=8, depth=1, heads=2)
KINDS = [ClassifierConfig(**SMALL, classes=3), SegmenterConfig(**SMALL, attention="axial", causal=(0,)), LinearConfig()]


@pytest.fixture
def hub(monkeypatch, tmp_path):
    "A small hub that huggingface_hub takes for the one of the world."
    HfApi, _ = library.HfApi, library.snapshot_download     # loads the modules that hold addresses
    with SmallHub() as small:
        places = {"ENDPOINT": small.address, "HF_HUB_CACHE": str(tmp_path / "cache"),
                  "HUGGINGFACE_CO_URL_TEMPLATE": small.address + "/{repo_id}/resolve/{revision}/{filename}"}
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        for module in [m for name, m in sys.modules.items() if name.startswith("huggingface_hub.")]:
            for name in places.keys() & vars(module).keys():
                monkeypatch.setattr(module, name, places[name])
        first = inspect.signature(HfApi.__init__).parameters["endpoint"].default
        monkeypatch.setattr(HfApi.__init__, "__defaults__", (first and small.address, *HfApi.__init__.__defaults__[1:]))
        yield small


@pytest.mark.parametrize("config", KINDS, ids=lambda c: type(c).__name__)
def test_a_model_comes_back_as_it_was(hub, config):
    torch.manual_seed(0)
    model = make_model(config, dtype=torch.float64)
    number = push_model(model, "someone/thing", token="hf_x")
    assert set(hub.find("someone/thing", "main")[1]) == {*FILES, "README.md", ".gitattributes"}
    for revision in (None, number):
        again = pull_model("someone/thing", revision)
        assert type(again) is type(model) and again.config == config and not again.training
        ours, theirs = model.state_dict(), again.state_dict()
        assert ours.keys() == theirs.keys() and all(t.equal(theirs[n]) for n, t in ours.items())
        assert {t.dtype for t in theirs.values()} == {t.dtype for t in ours.values()}
    assert pull_model("someone/thing", dtype=torch.float32).state_dict()[next(iter(ours))].dtype == torch.float32


def test_only_two_files_are_downloaded_and_no_pickle(hub, tmp_path):
    push_model(make_model(KINDS[0]), "someone/thing", token="hf_x")
    others = {"pytorch_model.bin": pickle.dumps(print), "setup.py": b"raise SystemExit", "a/config.json": b"{}"}
    hub.commit("someone/thing", "main", others)
    hub.asked.clear()
    pull_model("someone/thing", cache_dir=tmp_path / "own")
    assert {path.rpartition("/")[2] for method, path in hub.asked if "/resolve/" in path} == set(FILES)
    assert sorted(p.name for p in (tmp_path / "own").glob("*/snapshots/*/**/*")) == sorted(FILES)
    hub.asked.clear()                                   # and what was downloaded needs no network
    pull_model("someone/thing", cache_dir=tmp_path / "own", local_files_only=True)
    assert hub.asked == []
    hub.commit("someone/old", "main", {"config.json": b"{}", "pytorch_model.bin": pickle.dumps(print)})
    with pytest.raises((FileNotFoundError, ValueError), match="config.json|model.safetensors"):
        pull_model("someone/old")


def test_commits_and_branches_stay_what_they_are_and_repositories_may_be_private(hub):
    first, second, third = (make_model(KINDS[0]) for _ in range(3))
    number = push_model(first, "someone/thing", token="hf_x", private=True)
    assert hub.made.get("private") or hub.made.get("visibility") == "private"
    push_model(third, "someone/thing", token="hf_x", revision="try")
    assert push_model(second, "someone/thing", token="hf_x", message="Better") != number and hub.messages == ["Better"]
    for revision, model in ((number, first), (None, second), ("try", third)):
        assert pull_model("someone/thing", revision).head.weight.equal(model.head.weight)


def test_a_card_that_the_hub_reads_is_written_once_and_says_how_the_model_is_loaded(hub):
    model, names = make_model(KINDS[0]), {}
    push_model(model, "someone/thing", token="hf_x")
    text = hub.find("someone/thing", "main")[1]["README.md"].decode()
    assert text == model_card(model, "someone/thing") and library.ModelCard(text).data.library_name == "hot_nbdev"
    exec(text.split("```")[1].removeprefix("python"), names)
    assert names["model"].head.weight.equal(model.head.weight)
    hub.commit("someone/thing", "main", {"README.md": b"mine"})
    push_model(model, "someone/thing", token="hf_x")
    assert hub.find("someone/thing", "main")[1]["README.md"] == b"mine"


def test_what_could_not_be_pulled_is_not_pushed(hub):
    model = add_adapters(make_model(KINDS[0]), "*.ff.*")
    with pytest.raises(ValueError, match="load_model could not read it"):
        push_model(model, "someone/thing", token="hf_x")
    assert hub.asked == []
