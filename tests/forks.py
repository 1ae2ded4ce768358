"""Work in processes of their own, which begin where this one is, with torch imported, or anew; and servers."""
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from multiprocessing import get_context

FORK = get_context("fork")


def spoken(path, work, *args):
    "Do some work, and write what it says into a file."
    with open(path, "w", buffering=1) as file:
        os.dup2(file.fileno(), 1), os.dup2(file.fileno(), 2)
        sys.stdout = sys.stderr = file
        work(*args)


def start(work, *args):
    process = FORK.Process(target=work, args=args)
    process.start()
    return process


def run(path, work, *args):
    "The exit status of work in a process of its own, and what it said, which goes into a file."
    process = start(spoken, path, work, *args)
    process.join(300)
    return process.exitcode, path.read_text()


@contextmanager
def serving(handler):
    "The address of a server on this machine, in a thread that soon sees when it shall end."
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def fresh(code, folder, *words):
    "What a program prints in a process that begins anew, in a folder; it finds what this one finds."
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, *words], cwd=folder, capture_output=True,
                          text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
    assert done.returncode == 0, done.stderr
    return done.stdout
