"""A hub on this machine: repositories in memory, behind as much of the interface as models ask for.

    with SmallHub() as hub: ...     hub.address is where it listens, hub.asked what was asked of it
"""
import base64
import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote

from forks import serving


class SmallHub:
    def __init__(self):
        self.repositories, self.commits = {}, {}        # name -> branch -> commit; commit -> file -> bytes
        self.asked = []
        self.server = serving(type("Desk", (Desk,), {"hub": self}))

    def __enter__(self):
        self.address = self.server.__enter__()
        return self

    def __exit__(self, *error):
        return self.server.__exit__(*error)

    def commit(self, repo, branch, files):
        "A commit with these files beside those that were there; its number."
        old = self.commits.get(self.repositories.setdefault(repo, {}).get(branch), {})
        number = hashlib.sha1(repr((len(self.commits), sorted(files))).encode()).hexdigest()
        self.commits[number], self.repositories[repo][branch] = {**old, **files}, number
        return number

    def find(self, repo, revision):
        number = self.repositories.get(repo, {}).get(revision, revision)
        return (number, self.commits[number]) if number in self.commits else (None, None)


class Desk(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"       # a connection for each question, closed behind it

    def log_message(self, *_):
        pass

    def answer(self, body=b"", status=200, **headers):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def missing(self, what):
        self.answer({"error": "not found"}, 404, X_Error_Code=what)

    def do_GET(self):
        path = unquote(self.path.partition("?")[0])
        self.hub.asked.append((self.command, path))
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path):
            number, files = self.hub.find(found[1], found[3])
            if number is None:
                return self.missing("RevisionNotFound" if found[1] in self.hub.repositories else "RepoNotFound")
            if found[2] == "tree":
                return self.answer([{"type": "file", "path": n, "size": len(b), "oid": "0"} for n, b in files.items()])
            return self.answer({"id": found[1], "sha": number, "siblings": [{"rfilename": n} for n in files],
                                "private": False, "tags": [], "downloads": 0, "likes": 0})
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            number, files = self.hub.find(found[1], found[2])
            if number is None or found[3] not in files:
                return self.missing("RevisionNotFound" if number is None else "EntryNotFound")
            tag = hashlib.sha1(files[found[3]]).hexdigest()
            return self.answer(files[found[3]], ETag=f'"{tag}"', X_Repo_Commit=number)
        return self.missing("RepoNotFound")

    do_HEAD = do_GET

    def do_POST(self):
        path, text = unquote(self.path.partition("?")[0]), self.rfile.read(int(self.headers["Content-Length"]))
        self.hub.asked.append((self.command, path))
        if path == "/api/repos/create":
            said = json.loads(text)
            repo = f"{said['organization']}/{said['name']}" if said.get("organization") else said["name"]
            self.hub.made = said
            self.hub.repositories.get(repo) or self.hub.commit(repo, "main", {".gitattributes": b""})
            return self.answer({"url": f"{self.hub.address}/{repo}", "name": repo, "id": repo})
        if path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/branch/(.+)", path):
            branches = self.hub.repositories[found[1]]
            branches.setdefault(found[2], branches["main"])
            return self.answer({})
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/(.+)", path):
            paths = [f["path"] for f in json.loads(text)["files"]]
            return self.answer({"files": [{"path": p, "uploadMode": "regular", "shouldIgnore": False} for p in paths]})
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/(.+)", path):
            lines = [json.loads(line) for line in text.splitlines()]
            self.hub.messages = [line["value"]["summary"] for line in lines if line["key"] == "header"]
            files = [line["value"] for line in lines if line["key"] == "file"]
            files = {f["path"]: base64.b64decode(f["content"]) for f in files}
            number = self.hub.commit(found[1], found[2], files)
            return self.answer({"success": True, "commitUrl": f"{self.hub.address}/{found[1]}/commit/{number}",
                                "commitOid": number, "hookOutput": ""})
        return self.missing("RepoNotFound")
