"""Nothing runs that the user did not name: no program, no pickle, no network, no code in text."""

import ast
import subprocess
import sys
from pathlib import Path

import az_cv

SOURCE = Path(az_cv.__file__).parent
# What could run something, or reach out; one file may, with the program that the user named.
MODULES = {
    *("subprocess", "pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "socket"),
    *("urllib", "http", "requests", "ftplib", "webbrowser", "runpy", "pty", "code"),
}
MAY = {("sources/cmdstan_executable.py", "subprocess")}
CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "system",
    "popen",
    "execv",
    "spawnv",
    "read_pickle",
}
WATCH = """
import sys
FORBIDDEN = ("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile",
             "socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto",
             "socket.bind", "pickle.find_class", "urllib.", "http.client.", "ftplib.")
seen = []
def watch(event, arguments):
    if not event.startswith(FORBIDDEN):
        return
    # Python's own platform module asks for the processor; dask copies functions on its import.
    if event == "subprocess.Popen" and list(arguments[1]) == ["uname", "-p"]:
        return
    if event == "pickle.find_class" and arguments[0].partition(".")[0] in ("_operator", "dask"):
        return
    seen.append((event, str(arguments)))
sys.addaudithook(watch)
"""
USE = """
import az_cv
from az_cv.cli import main
assert main(["demo"]) == 0
data = az_cv.load_eight_schools().isel(draw=slice(60))
data.to_netcdf("trace.nc", engine="h5netcdf")
data.to_zarr("trace.zarr", zarr_format=2)
for name in ("trace.nc", "trace.zarr"):
    command = [name, "--family", "polynomial", "--var-names", "mu"]
    for output in ("a.nc", "a.zarr", "a.csv", "a.html", "a.json", "a.txt"):
        assert main(["summary", *command, "--output", output]) == 0
    assert main(["check", name]) == 0
    assert main(["plot", *command]) == 0
az_cv.summary("trace.nc", family="network", random_seed=1, progressbar=False)
print("SEEN", seen)
"""


def run(code, folder):
    done = subprocess.run(
        [sys.executable, "-c", WATCH + code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.rpartition("SEEN ")[2].strip()


def test_nothing_is_executed_unpickled_or_connected_to(tmp_path):
    assert run(USE, tmp_path) == "[]"


def test_the_watch_sees_programs_pickles_and_connections(tmp_path):
    code = """
import os, pickle, socket, subprocess, pathlib
subprocess.run(["true"])
pickle.loads(pickle.dumps(pathlib.PurePath("a")))
try:
    socket.create_connection(("127.0.0.1", 9), timeout=0.1)
except OSError:
    pass
print("SEEN", sorted({event for event, _ in seen}))
"""
    seen = run(code, tmp_path)
    for event in ("subprocess.Popen", "pickle.find_class", "socket.connect"):
        assert event in seen


def test_no_source_file_can_run_anything():
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            imported = []
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                imported = [node.module or ""]
            for module in imported:
                root = module.partition(".")[0]
                is_allowed = root not in MODULES or (name, root) in MAY
                assert is_allowed, f"{name}:{node.lineno} imports {module}"
            if isinstance(node, ast.Call):
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                # jax's executables and regular expressions have a method `compile`, too.
                is_method = isinstance(node.func, ast.Attribute) and called == "compile"
                assert called not in CALLS or is_method, f"{name}:{node.lineno} calls {called}"
                keywords = {word.arg: word.value for word in node.keywords}
                assert "allow_pickle" not in keywords, f"{name}:{node.lineno}"
                assert "shell" not in keywords, f"{name}:{node.lineno} goes through a shell"
