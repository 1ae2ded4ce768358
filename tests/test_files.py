"""Files: downloads that fail in every way, checksums, damaged arrays."""
import contextlib
import gzip
import hashlib
import http.server
import sys

import pytest
from forks import serving

from hot_nbdev.data.files import Source, fetch, file_hash, load_array, official_file

BODY = bytes(range(256)) * 4000          # about a megabyte: several reads
MD5 = hashlib.md5(BODY).hexdigest()


class Server(http.server.BaseHTTPRequestHandler):
    "Whole, short, packed, or missing."

    def do_GET(self):
        body = gzip.compress(BODY) if "gz" in self.path and "plain" not in self.path else BODY
        sent = body[:len(body) // 2] if "short" in self.path else body
        self.send_response(404 if "none" in self.path else 200)
        if "unsaid" not in self.path:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):       # the other side may have hung up
            self.wfile.write(sent)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def home():
    with serving(Server) as address:
        yield address


def files(folder):
    return sorted(p.name for p in folder.iterdir())


def test_download(home, tmp_path, capsys):
    path = fetch(f"{home}/whole", tmp_path / "x.bin", MD5, progress=True)
    assert path.read_bytes() == BODY and files(tmp_path) == ["x.bin"]
    bar = capsys.readouterr().err
    assert "100%" in bar and bar.endswith("\n")
    fetch(f"{home}/unsaid", tmp_path / "y.bin", MD5, progress=True)
    assert "B/s" in capsys.readouterr().err
    fetch(f"{home}/whole", tmp_path / "z.bin", file_hash(path), progress=False)
    assert capsys.readouterr().err == ""


def test_download_unpacks(home, tmp_path):
    assert fetch(f"{home}/x.txt.gz", tmp_path / "x.txt", MD5).read_bytes() == BODY
    assert gzip.decompress(fetch(f"{home}/x.txt.gz", tmp_path / "x.txt.gz", unchecked=True).read_bytes()) == BODY


@pytest.mark.parametrize("path, error, text", [
    ("short", OSError, "IncompleteRead.*nothing was kept"), ("none", OSError, "404"),
    ("whole", ValueError, "should have the checksum"), ("unsaid.short.gz", OSError, "ended before"),
    ("plain?.gz", OSError, "failed")])           # says gz and is not
def test_failed_download_leaves_nothing(home, tmp_path, path, error, text):
    with pytest.raises(error, match=text):
        fetch(f"{home}/{path}", tmp_path / "x.bin", "0" * 32)
    assert files(tmp_path) == []


def test_half_a_file_never_has_its_final_name_and_an_interrupted_one_leaves_nothing(home, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("tqdm.tqdm.update", lambda *_: seen.extend(files(tmp_path)))
    fetch(f"{home}/whole", tmp_path / "x.bin", MD5, progress=True).unlink()
    assert seen and all(name.endswith(".part") for name in seen)

    def stop(*args):
        raise KeyboardInterrupt
    monkeypatch.setattr("tqdm.tqdm.update", stop)
    with pytest.raises(KeyboardInterrupt):
        fetch(f"{home}/whole", tmp_path / "x.bin", MD5, progress=True)
    assert files(tmp_path) == []


def test_official_file_is_found_fetched_or_explained(home, tmp_path):
    source = Source("deep/x.bin", "https://example.org", f"{home}/whole", MD5, (), "")
    with pytest.raises(FileNotFoundError, match="https://example.org.*HOT_DATA"):
        official_file("x", source, tmp_path, download=False)
    path = official_file("x", source, tmp_path)
    assert path == tmp_path / "deep" / "x.bin"
    path.rename(tmp_path / "x.bin")
    assert official_file("x", source, tmp_path) == tmp_path / "x.bin"
    (tmp_path / "x.bin").unlink()
    with pytest.raises(FileNotFoundError, match=f"(?s)x.bin is not in.*{MD5}.*404"):
        official_file("x", source._replace(url=f"{home}/none"), tmp_path)
    assert files(tmp_path) == ["deep"] and files(tmp_path / "deep") == []
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        official_file("x", source, tmp_path / "nowhere")


PAGE = b"\xef\xbb\xbf \n<!DOCTYPE html><title>Log in</title>"


def test_a_web_page_is_not_kept_as_data(home, tmp_path, monkeypatch):
    "A page with the answer 200, as a home behind a login gives it, and one that was kept earlier."
    monkeypatch.setitem(globals(), "BODY", PAGE)
    with pytest.raises(ValueError, match="web page.*login"):
        fetch(f"{home}/unsaid", tmp_path / "electricity.csv", unchecked=True)
    assert files(tmp_path) == []
    (tmp_path / "electricity.csv").write_bytes(PAGE)
    source = Source("electricity.csv", "https://example.org", None, None, (), "")
    for options in ({}, {"unchecked": True}, {"verify": False}):
        with pytest.raises(ValueError, match="web page.*https://example.org"):
            official_file("electricity", source, tmp_path, **options)


def test_a_file_without_checksum_is_used_only_when_allowed(home, tmp_path):
    source = Source("x.bin", "https://example.org", f"{home}/whole", None, (), "")
    with pytest.raises(FileNotFoundError, match="not known.*unchecked=True"):
        official_file("x", source, tmp_path)
    assert files(tmp_path) == []
    path = official_file("x", source, tmp_path, unchecked=True)
    assert official_file("x", source, tmp_path, unchecked=True) == path
    assert official_file("x", source, tmp_path, verify=False) == path


def test_downloads_without_pooch_name_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    source = Source("x.bin", "https://example.org", "http://127.0.0.1:9/x", MD5, (), "")
    with pytest.raises(FileNotFoundError, match=r"x.bin is not in.*hot_nbdev\[train\]"):
        official_file("x", source, tmp_path)
    assert files(tmp_path) == []


def test_arrays_that_cannot_be_read_give_one_line(tmp_path):
    "Beside those of chapter 47."
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "empty.npy").write_bytes(b"")
    for file, text in [("text.npz", "cannot be read"), ("empty.npy", "cannot be read"), ("x.csv", "npy or .npz")]:
        with pytest.raises(ValueError, match=text) as e:
            load_array(tmp_path / file)
        assert file in str(e.value) and "\n" not in str(e.value)
