"""Models are pushed to the Hugging Face Hub and pulled from it, as the two files that they are saved as.

Nothing else of a repository is downloaded: no code, and no pickle. A repository can change from one day to the next;
give `revision`, the number of a commit that `push_model` returns, where a result has to stay what it is.
Needs huggingface_hub: pip install huggingface_hub
"""
import tempfile
from pathlib import Path

import huggingface_hub

from hot_nbdev.model_config import ClassifierConfig
from hot_nbdev.models import Model, load_model, make_model

FILES = ("config.json", "model.safetensors")        # what `Model.save` writes


def model_card(model: Model, repo_id: str) -> str:
    "What a new repository says of itself: what it holds, and how it is loaded."
    kind, weights = type(model).__name__, sum(p.numel() for p in model.parameters())
    return (f"---\nlibrary_name: hot_nbdev\ntags:\n- tensor-attention\n---\n\n# {repo_id.rpartition('/')[2]}\n\n"
            f"A `{kind}` with {weights:,} parameters, made with the library hot_nbdev. Load it with\n\n"
            "```python\nfrom huggingface_hub import snapshot_download\nfrom hot_nbdev.models import load_model\n\n"
            f"model = load_model(snapshot_download({repo_id!r}, allow_patterns={list(FILES)}))\n```\n")


def push_model(model: Model, repo_id: str, revision: str | None = None, message: str = "Upload model", *,
               private: bool | None = None, token: str | None = None) -> str:
    "Upload settings and weights, and a card where there is none; the number of the commit."
    api = huggingface_hub.HfApi(token=token)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)                      # refuses what could not be loaded, before anything is asked of the hub
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        if not api.file_exists(repo_id, "README.md", revision=revision):
            Path(folder, "README.md").write_text(model_card(model, repo_id), encoding="utf-8")
        return api.upload_folder(repo_id=repo_id, folder_path=folder, revision=revision, commit_message=message).oid


def pull_model(repo_id: str, revision: str | None = None, device=None, dtype=None, **download) -> Model:
    "Download a model, if that was not done before, and load it; other options are those of `snapshot_download`."
    folder = huggingface_hub.snapshot_download(repo_id, revision=revision, allow_patterns=list(FILES), **download)
    return load_model(folder, device, dtype)


def main():
    "Without a network: a model lies where a download would have put it."
    model = make_model(ClassifierConfig(patch=(2, 2), dim=8, depth=1, heads=2, classes=3))
    with tempfile.TemporaryDirectory() as cache:
        kept = Path(cache, "models--someone--scenes")
        model.save(kept / "snapshots" / "0123abcd")
        (kept / "refs").mkdir()
        (kept / "refs" / "main").write_text("0123abcd")
        again = pull_model("someone/scenes", cache_dir=cache, local_files_only=True)
    assert again.config == model.config
    assert all(p.equal(again.state_dict()[name]) for name, p in model.state_dict().items())
    print(model_card(model, "someone/scenes"))


if __name__ == "__main__":
    main()
